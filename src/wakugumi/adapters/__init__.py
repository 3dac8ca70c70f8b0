"""TOUCHES. One file per outside thing; foreign exceptions become ours here and nowhere else."""
