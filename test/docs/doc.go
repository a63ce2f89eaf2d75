// Package docs holds the documents to the truth. Every code block of every document is in the table of table_test.go, which
// says how it is checked: it is a file, or it runs in the test machine with its expected output, or its parts are checked
// one by one. A block that is not in the table fails the test, and so does an entry without a block. Every relink command line
// of any document, in a block or in a sentence, must be one that the real command knows. Every link must lead somewhere.
package docs
