"""Language models by name: one client, a cassette, prices, and scripted stand-ins."""
