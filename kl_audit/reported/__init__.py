"""Small functions in the shape of the code that public reports are about, where no formula will do.

A case file names them; each module is imported when a case runs that does, and may import its framework.
"""
