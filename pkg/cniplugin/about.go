package cniplugin

// Version is relink's version, set when it is built.
var Version = "development"

// About is what a plugin says of itself when it is run by hand.
func About(name string) string { return "CNI plugin " + name + " " + Version }
