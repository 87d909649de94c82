"""What operators are before they are compiled: sums of non-branching terms, and of local matrices."""
