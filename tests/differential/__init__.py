"""The differential test: the same statements said directly and through the pooler must be answered alike."""
