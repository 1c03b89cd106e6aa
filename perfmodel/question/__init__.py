"""What each command can be asked: its options, declared once, with their words; the answers are elsewhere."""
