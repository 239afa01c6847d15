"""What limits should be."""
