"""The bundle on disk: manifest, verification, calibration figures and recordings."""
