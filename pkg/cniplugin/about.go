package cniplugin

// Version is relink's version, set when it is built.
var Version = "development"

// about is what a plugin prints about itself when somebody runs it by hand.
func about(name string) string { return "CNI plugin " + name + " " + Version }
