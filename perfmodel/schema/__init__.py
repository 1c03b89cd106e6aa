"""What files and tables hold, validated on the way in."""
