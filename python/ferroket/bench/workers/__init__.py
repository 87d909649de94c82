"""The programs that ranks run to be measured."""
