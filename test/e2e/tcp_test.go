package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// tcpEcho ADDRESS is a program for the wire's other end. It never ends, and sends back all that it receives on any
// connection.
func tcpEcho() {
	listener, err := net.Listen("tcp", os.Args[1])
	exitOn(err)
	for {
		conn, err := listener.Accept()
		exitOn(err)
		go func() { _, _ = io.Copy(conn, conn) }()
	}
}

// tcpTalk ADDRESS FILE is a program for a pod. It connects and sends a text. Once FILE exists, it sends another text
// over the same connection.
func tcpTalk() {
	var conn net.Conn
	exitOn(eventually(func() (err error) {
		conn, err = net.DialTimeout("tcp", os.Args[1], time.Second)
		return err
	}))
	exitOn(conn.SetDeadline(time.Now().Add(2 * time.Minute)))
	answers := bufio.NewReader(conn)
	say(conn, answers, "before")
	exitOn(os.WriteFile(os.Args[2]+".connected", nil, 0o600))
	for {
		if _, err := os.Stat(os.Args[2]); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	say(conn, answers, "after")
}

func say(conn net.Conn, answers *bufio.Reader, word string) {
	_, err := fmt.Fprintln(conn, word)
	exitOn(err)
	answer, err := answers.ReadString('\n')
	exitOn(err)
	fmt.Printf("%s: answered %s", conn.LocalAddr(), answer)
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
