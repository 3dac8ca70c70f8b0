"""What a leader writes to its journal, how it reads it again, and which requests lie only there."""
