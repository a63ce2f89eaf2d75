// Package change is the one way in which a verb changes sandboxes.
//
// A verb first decides, from what it lists, what is to be done about each attachment, and why: these are its actions, as plain data. A dry
// run ends there and reports them. [Runner.Run] carries them out: it takes each sandbox's lock, and calls the verb, which decides again from what is
// there under the lock, and acts. What became of each is an [Outcome], and all of them are a [Report]: both have one form for all verbs.
package change
