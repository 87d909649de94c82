"""What airspeed velocity measures at each commit."""
