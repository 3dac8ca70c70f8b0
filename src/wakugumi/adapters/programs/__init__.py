"""Programs as processes: started, limited, watched and ended, with their output in files."""
