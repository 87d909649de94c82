"""What is accelerated: tables of models, samplers, operators, drivers and spaces, made of what ``fk.explain`` says."""
