"""TOUCHES. One file per outside thing; foreign exceptions are translated into ours here and nowhere else."""
