// Package serve is the agent's end of the control socket: the socket itself, which only root may use, and the
// handler of its requests. What is asked goes to an [Agent].
package serve
