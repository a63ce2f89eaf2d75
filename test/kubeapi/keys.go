package kubeapi

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Authority makes certificates.
type Authority struct {
	// Cert is the certificate of the authority itself.
	Cert *x509.Certificate
	dir  string
	key  crypto.Signer
}

// NewAuthority makes ca.crt and ca.key in the directory.
func NewAuthority(dir string) (*Authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	a := &Authority{dir: dir, key: key}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.Cert, err = a.sign(template, template, a.key, "ca")
	return a, err
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// Issue makes NAME.crt and NAME.key for the subject.
func (a *Authority) Issue(name string, subject pkix.Name) error {
	key, err := newKey()
	if err != nil {
		return err
	}
	_, err = a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: subject, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.Cert, key, name)
	return err
}

func (a *Authority) sign(template, parent *x509.Certificate, key crypto.Signer, name string) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	for file, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(a.dir, name+file), pem.EncodeToMemory(block), 0o600); err != nil {
			return nil, err
		}
	}
	return x509.ParseCertificate(der)
}
