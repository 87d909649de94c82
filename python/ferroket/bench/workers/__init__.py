"""What ranks run to be measured."""
