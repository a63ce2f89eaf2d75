package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/relink-cni/relink/test/traffic"
)

// busyPods WIRE FILE POD=ADDRESS... pings each pod from the wire every 20 ms, and keeps a TCP stream open from each to the
// address WIRE. It creates FILE.going when all goes on. Once FILE exists, it prints what was lost, and for how long.
func busyPods() {
	wire, file := netip.MustParseAddr(os.Args[1]), os.Args[2]
	var addresses []netip.Addr
	var paths []string
	for _, arg := range os.Args[3:] {
		pod, address, _ := strings.Cut(arg, "=")
		addresses, paths = append(addresses, netip.MustParseAddr(address)), append(paths, "/run/netns/"+pod)
	}
	const pingInterval, streamInterval = 20 * time.Millisecond, 50 * time.Millisecond
	pings, err := traffic.StartPings("/run/netns/wire", addresses, pingInterval)
	exitOn(err)
	streams, err := traffic.StartStreams("/run/netns/wire", wire, paths, streamInterval)
	exitOn(err)
	time.Sleep(time.Second)
	start := time.Now()
	exitOn(os.WriteFile(file+".going", nil, 0o600))
	const limit = 90 * time.Second // A story that fails would wait for this program.
	for time.Since(start) < limit {
		if _, err := os.Stat(file); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	pinged, err := pings.Since(start)
	exitOn(err)
	streamed, err := streams.Since(start)
	exitOn(err)
	fmt.Printf("%d pings lost of %d; longest gap %d ms of a ping, %d ms of a stream; late by %d ms\n",
		pinged.Lost, pinged.Sent*len(paths), pinged.Longest().Milliseconds(), streamed.Longest().Milliseconds(), pinged.Late.Milliseconds())
}
