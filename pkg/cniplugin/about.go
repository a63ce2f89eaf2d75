package cniplugin

// Version is relink's version, set when it is built.
var Version = "development"

// About is what a plugin prints about itself when somebody runs it by hand.
func About(name string) string { return "CNI plugin " + name + " " + Version }
