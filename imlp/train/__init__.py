"""Training: settings, data, augmentation, the loop. It talks to a backend and never to an array library of one."""
