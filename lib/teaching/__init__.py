"""For a class: exercises in the notebooks, student copies, slides and the glossary. No lesson depends on it."""
