// Package crash kills relink's programs at every step and runs them all at once, and then looks whether anything was lost.
package crash
