"""What a leader answers when somebody asks: questions, lists, reasons, metrics. Reads the machine, changes nothing."""
