"""What the converter raises for a checkpoint that it does not convert."""


class ConversionError(Exception):
    """Names the file, what was found and what is needed."""
