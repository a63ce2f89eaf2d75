package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net"
	"net/netip"
	"strings"
	"testing"
)

var (
	probeMAC   = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	probeNonce = []byte{1, 2, 3, 4, 5, 6}
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Each frame is right in every byte. Another program computed the checksums.
func TestFrames(t *testing.T) {
	for what, test := range map[string]struct {
		got  []byte
		want string
	}{
		"ARP probe, RFC 5227 section 2.1.1": {
			Solicitation(probeMAC, addr("0.0.0.0"), addr("10.3.0.2"), probeNonce),
			"ffffffffffff 020000000001 0806" + // to all
				"0001 0800 06 04 0001" + // Ethernet, IPv4, lengths, request
				"020000000001 00000000" + // sender: the MAC, no address
				"000000000000 0a030002", // target: no MAC, the address
		},
		"neighbour solicitation, RFC 4862 section 5.4.2": {
			Solicitation(probeMAC, addr("::"), addr("fd00:3::a1:b2c3"), probeNonce),
			"3333ffa1b2c3 020000000001 86dd" + // to the group of RFC 2464 section 7
				"60000000 0020 3a ff" + // 32 bytes of ICMPv6, hop limit 255
				"00000000000000000000000000000000" + // from ::
				"ff0200000000000000000001ffa1b2c3" + // to the solicited-node group
				"8700 ffc5 00000000" +
				"fd0000030000000000000000 00a1b2c3" + // target
				"0e01 010203040506", // nonce, 8 bytes: RFC 7527, RFC 3971 section 5.3.2
		},
		"ARP request, RFC 826": {
			Solicitation(probeMAC, addr("10.3.0.5"), addr("10.3.0.2"), nil),
			"ffffffffffff 020000000001 0806 0001 0800 06 04 0001 020000000001 0a030005 000000000000 0a030002",
		},
		"neighbour solicitation, RFC 4861 section 4.3": {
			Solicitation(probeMAC, addr("fd00:3::5"), addr("fd00:3::2"), nil),
			"3333ff000002 020000000001 86dd 60000000 0020 3a ff" +
				"fd000003000000000000000000000005 ff0200000000000000000001ff000002" +
				"8700 7d8d 00000000 fd000003000000000000000000000002" +
				"0101 020000000001", // the MAC of the host that asks
		},
		"gratuitous ARP, RFC 5227 section 3": {
			Announcement(probeMAC, addr("10.3.0.2")),
			"ffffffffffff 020000000001 0806 0001 0800 06 04 0001" +
				"020000000001 0a030002" + // sender
				"000000000000 0a030002", // target: the same address
		},
		"unsolicited neighbour advertisement, RFC 4861 section 7.2.6": {
			Announcement(probeMAC, addr("fd00:3::2")),
			"333300000001 020000000001 86dd 60000000 0020 3a ff" +
				"fd000003000000000000000000000002 ff020000000000000000000000000001" + // to all nodes
				"8800 5a93 20000000 fd000003000000000000000000000002" + // override
				"0201 020000000001", // target's MAC
		},
		"a VLAN's tag, IEEE 802.1Q": {
			Tagged(Announcement(probeMAC, addr("10.3.0.2")), 0x8100, 3),
			"ffffffffffff 020000000001 8100 0003 0806 0001 0800 06 04 0001 020000000001 0a030002 000000000000 0a030002",
		},
	} {
		if want := unhex(t, test.want); !bytes.Equal(test.got, want) {
			t.Errorf("%s:\n%x, want\n%x", what, test.got, want)
		}
	}
}

const (
	// arpFrom begins an ARP packet of another host.
	arpFrom = "020000000001 020000000099 0806 0001 0800 06 04 "
	// naFrom and nsFrom begin IPv6 packets of another host, up to the payload's length.
	naFrom = "333300000001 020000000099 86dd 60000000 "
	nsFrom = "3333ff000002 020000000099 86dd 60000000 "

	otherHost, allNodesGroup = "fd000003000000000000000000000002 ", "ff020000000000000000000000000001 "
	nobody, solicitedGroup   = "00000000000000000000000000000000 ", "ff0200000000000000000001ff000002 "
)

// checked returns the frame with the right checksum in place of CHECK.
func checked(t *testing.T, frame string) []byte {
	t.Helper()
	b := unhex(t, strings.Replace(frame, "CHECK", "0000", 1))
	if strings.Contains(frame, "CHECK") {
		setChecksum(b)
	}
	return b
}

// setChecksum sets the ICMPv6 checksum of an IPv6 frame that is long enough.
func setChecksum(frame []byte) {
	const checksum = ethernetLen + ipv6Len + 2
	if len(frame) < checksum+2 || frame[12] != 0x86 || frame[13] != 0xdd {
		return
	}
	frame[checksum], frame[checksum+1] = 0, 0
	message := frame[ethernetLen+ipv6Len:]
	message = message[:min(len(message), int(binary.BigEndian.Uint16(frame[ethernetLen+4:])))&^1]
	from, to := netip.AddrFrom16([16]byte(frame[22:38])), netip.AddrFrom16([16]byte(frame[38:54]))
	binary.BigEndian.PutUint16(frame[checksum:], icmpv6Checksum(from, to, message))
}

// Only an answer says that a host is there. What others ask for, or probe for, says nothing.
func TestAnswers(t *testing.T) {
	for what, test := range map[string]struct {
		frame  string
		answer bool
	}{
		"reply":               {arpFrom + "0002 020000000099 0a030002 020000000001 0a030005", true},
		"request for another": {arpFrom + "0001 020000000099 0a030002 000000000000 0a030009", false},
		"probe for it":        {arpFrom + "0001 020000000099 00000000 000000000000 0a030002", false},
		"advertisement to it": {naFrom + "0018 3a ff" + otherHost + otherHost + "8800 CHECK 60000000" + otherHost, true},
		"duplicate detection": {nsFrom + "0018 3a ff" + nobody + solicitedGroup + "8700 CHECK 00000000" + otherHost, false},
	} {
		claim, ok := ParseClaim(checked(t, test.frame), probeMAC, probeNonce)
		if !ok || claim.Answer != test.answer {
			t.Errorf("%s: %+v, %v", what, claim, ok)
		}
	}
}

func TestParseClaim(t *testing.T) {
	const v4, v6, other, third = "10.3.0.2", "fd00:3::2", "02:00:00:00:00:99", "02:00:00:00:00:98"
	for what, test := range map[string]struct {
		frame     string
		addr, mac string // Empty for no claim.
	}{
		"reply":               {arpFrom + "0002 020000000099 0a030002 020000000001 00000000", v4, other},
		"request for another": {arpFrom + "0001 020000000099 0a030002 000000000000 0a030009", v4, other},
		"gratuitous request":  {arpFrom + "0001 020000000099 0a030002 000000000000 0a030002", v4, other},
		"gratuitous reply":    {arpFrom + "0002 020000000099 0a030002 ffffffffffff 0a030002", v4, other},
		"probe":               {arpFrom + "0001 020000000099 00000000 000000000000 0a030002", v4, other},
		"reply with padding":  {arpFrom + "0002 020000000099 0a030002 020000000001 00000000 000000000000", v4, other},
		"reply on behalf":     {arpFrom + "0002 020000000098 0a030002 020000000001 00000000", v4, third},

		"own ARP MAC in it":       {arpFrom + "0002 020000000001 0a030002 020000000001 00000000", "", ""},
		"own frame for another":   {"ffffffffffff 020000000001 0806 0001 0800 06 04 0002 020000000099 0a030002 020000000001 00000000", "", ""},
		"own probe":               {"ffffffffffff 020000000001 0806 0001 0800 06 04 0001 020000000001 00000000 000000000000 0a030002", "", ""},
		"reply without sender":    {arpFrom + "0002 020000000099 00000000 020000000001 0a030002", "", ""},
		"probe of nothing":        {arpFrom + "0001 020000000099 00000000 000000000000 00000000", "", ""},
		"reverse ARP":             {arpFrom + "0003 020000000099 0a030002 020000000001 00000000", "", ""},
		"ARP of another hardware": {"020000000001 020000000099 0806 0006 0800 06 04 0002 020000000099 0a030002 020000000001 00000000", "", ""},
		"ARP of another protocol": {"020000000001 020000000099 0806 0001 86dd 06 04 0002 020000000099 0a030002 020000000001 00000000", "", ""},
		"ARP of other lengths":    {"020000000001 020000000099 0806 0001 0800 06 10 0002 020000000099 0a030002 020000000001 00000000", "", ""},
		"ARP cut off":             {arpFrom + "0002 020000000099 0a030002 020000000001 000000", "", ""},
		"ARP as another protocol": {"020000000001 020000000099 0800 0001 0800 06 04 0002 020000000099 0a030002 020000000001 00000000", "", ""},
		"Ethernet header cut off": {"020000000001 020000000099 08", "", ""},

		"advertisement":                     {naFrom + "0020 3a ff" + otherHost + allNodesGroup + "8800 CHECK 20000000" + otherHost + "0201 020000000099", v6, other},
		"advertisement on behalf":           {naFrom + "0020 3a ff" + otherHost + allNodesGroup + "8800 CHECK 20000000" + otherHost + "0201 020000000098", v6, third},
		"advertisement without MAC":         {naFrom + "0018 3a ff" + otherHost + allNodesGroup + "8800 CHECK 20000000" + otherHost, v6, other},
		"advertisement with another option": {naFrom + "0028 3a ff" + otherHost + allNodesGroup + "8800 CHECK 20000000" + otherHost + "f101 000000000000 0201 020000000098", v6, third},
		"advertisement with a longer MAC":   {naFrom + "0028 3a ff" + otherHost + allNodesGroup + "8800 CHECK 20000000" + otherHost + "0202 0200000000980000000000000000", v6, other},
		"solicited, to one":                 {naFrom + "0018 3a ff" + otherHost + otherHost + "8800 CHECK 60000000" + otherHost, v6, other},
		"advertisement with padding":        {naFrom + "0018 3a ff" + otherHost + allNodesGroup + "8800 CHECK 20000000" + otherHost + "0000", v6, other},
		"detection":                         {nsFrom + "0018 3a ff" + nobody + solicitedGroup + "8700 CHECK 00000000" + otherHost, v6, other},
		"detection with another nonce":      {nsFrom + "0020 3a ff" + nobody + solicitedGroup + "8700 CHECK 00000000" + otherHost + "0e01 010203040507", v6, other},
		"detection with a longer nonce":     {nsFrom + "0028 3a ff" + nobody + solicitedGroup + "8700 CHECK 00000000" + otherHost + "0e02 0102030405060000000000000000", v6, other},

		"own nonce from elsewhere":     {nsFrom + "0020 3a ff" + nobody + solicitedGroup + "8700 CHECK 00000000" + otherHost + "0e01 010203040506", "", ""},
		"own solicitation":             {"3333ff000002 020000000001 86dd 60000000 0018 3a ff" + nobody + solicitedGroup + "8700 CHECK 00000000" + otherHost, "", ""},
		"own MAC in an advertisement":  {naFrom + "0020 3a ff" + otherHost + allNodesGroup + "8800 CHECK 20000000" + otherHost + "0201 020000000001", "", ""},
		"resolution":                   {nsFrom + "0018 3a ff" + otherHost + solicitedGroup + "8700 CHECK 00000000" + otherHost, "", ""},
		"detection to another group":   {nsFrom + "0018 3a ff" + nobody + allNodesGroup + "8700 CHECK 00000000" + otherHost, "", ""},
		"detection with a source MAC":  {nsFrom + "0020 3a ff" + nobody + solicitedGroup + "8700 CHECK 00000000" + otherHost + "0101 020000000099", "", ""},
		"solicited, to all":            {naFrom + "0018 3a ff" + otherHost + allNodesGroup + "8800 CHECK 60000000" + otherHost, "", ""},
		"target is a group":            {naFrom + "0018 3a ff" + otherHost + allNodesGroup + "8800 CHECK 20000000" + allNodesGroup, "", ""},
		"target is nothing":            {naFrom + "0018 3a ff" + otherHost + allNodesGroup + "8800 CHECK 20000000" + nobody, "", ""},
		"forwarded":                    {naFrom + "0018 3a fe" + otherHost + allNodesGroup + "8800 CHECK 20000000" + otherHost, "", ""},
		"another code":                 {naFrom + "0018 3a ff" + otherHost + allNodesGroup + "8801 CHECK 20000000" + otherHost, "", ""},
		"wrong checksum":               {naFrom + "0018 3a ff" + otherHost + allNodesGroup + "8800 1234 20000000" + otherHost, "", ""},
		"router advertisement":         {naFrom + "0018 3a ff" + otherHost + allNodesGroup + "8600 CHECK 20000000" + otherHost, "", ""},
		"not ICMPv6":                   {naFrom + "0018 11 ff" + otherHost + allNodesGroup + "8800 CHECK 20000000" + otherHost, "", ""},
		"not version 6":                {"333300000001 020000000099 86dd 40000000 0018 3a ff" + otherHost + allNodesGroup + "8800 CHECK 20000000" + otherHost, "", ""},
		"target cut off":               {naFrom + "0010 3a ff" + otherHost + allNodesGroup + "8800 CHECK 20000000 fd00000300000000", "", ""},
		"longer than the frame":        {naFrom + "0020 3a ff" + otherHost + allNodesGroup + "8800 CHECK 20000000" + otherHost, "", ""},
		"option without a length":      {naFrom + "0020 3a ff" + otherHost + allNodesGroup + "8800 CHECK 20000000" + otherHost + "0200 020000000099", "", ""},
		"option longer than the rest":  {naFrom + "0020 3a ff" + otherHost + allNodesGroup + "8800 CHECK 20000000" + otherHost + "0202 020000000099", "", ""},
		"length that is no whole unit": {naFrom + "001a 3a ff" + otherHost + allNodesGroup + "8800 CHECK 20000000" + otherHost + "0200", "", ""},
		"IPv6 header cut off":          {naFrom + "0018 3a ff" + otherHost, "", ""},
	} {
		claim, ok := ParseClaim(checked(t, test.frame), probeMAC, probeNonce)
		switch {
		case ok != (test.addr != ""):
			t.Errorf("%s: claim %v, %+v", what, ok, claim)
		case ok && (claim.Address != addr(test.addr) || claim.MAC.String() != test.mac):
			t.Errorf("%s: %+v, want %s at %s", what, claim, test.addr, test.mac)
		}
	}
}

// FuzzParseClaim shows that no frame makes ParseClaim panic, that no frame claims anything for the prober
// itself, and that padding does not change what a frame claims.
func FuzzParseClaim(f *testing.F) {
	other := net.HardwareAddr{2, 0, 0, 0, 0, 0x99}
	for source, a := range map[netip.Addr]netip.Addr{addr("0.0.0.0"): addr("10.3.0.2"), addr("::"): addr("fd00:3::2")} {
		f.Add(Announcement(other, a))
		f.Add(Solicitation(other, source, a, make([]byte, NonceLen)))
		f.Add(Solicitation(probeMAC, source, a, probeNonce))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		frame = bytes.Clone(frame)
		setChecksum(frame) // Random bytes would hardly ever have the right one.
		before := bytes.Clone(frame)
		claim, ok := ParseClaim(frame, probeMAC, probeNonce)
		if !bytes.Equal(frame, before) {
			t.Error("the frame was changed")
		}
		if !ok {
			return
		}
		if !claim.Address.IsValid() || claim.Address.IsUnspecified() || len(claim.MAC) != 6 || bytes.Equal(claim.MAC, probeMAC) {
			t.Errorf("claim %+v", claim)
		}
		again, ok := ParseClaim(append(before, 0, 0), probeMAC, probeNonce)
		if !ok || again.Address != claim.Address || !bytes.Equal(again.MAC, claim.MAC) {
			t.Errorf("claim %+v with padding, %+v without", again, claim)
		}
	})
}
