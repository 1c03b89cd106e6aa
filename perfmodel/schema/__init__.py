"""Contents of files and tables, validated when they are read."""
