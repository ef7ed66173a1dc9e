"""Every place in the parameters where a model may be named, and models behind HTTP that fill it."""
