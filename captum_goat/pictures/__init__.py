"""What :mod:`captum_goat.visualization` draws with: layouts, colours, lines and molecules."""
