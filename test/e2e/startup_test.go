// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/manifests"
	"sluice.dev/test/clustertest"
)

// admissionConfiguration gives the API server a client certificate for webhooks.
const admissionConfiguration = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
%s`

const admissionPlugin = `- name: %s
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: %s
`

// apiServerUser is the common name of the API server's client certificate for webhooks.
const apiServerUser = "apiserver-for-webhooks"

// startupTest is a cluster without Sluice, whose API server has a client certificate for webhooks.
type startupTest struct {
	*testing.T
	cluster *clustertest.Cluster
	running map[string]*clustertest.Process
	client  client.Client
	bin     string
	ports   []int
	// certificate is the API server's client certificate.
	certificate tls.Certificate
	clientCA    string
}

func newStartupTest(t *testing.T) *startupTest {
	t.Helper()
	dir := t.TempDir()
	authority, certificate, key := newClientCertificate(t, apiServerUser)
	clientCA := filepath.Join(dir, "client-ca.crt")
	writeTestFile(t, clientCA, string(authority))
	kubeconfig := filepath.Join(dir, "kubeconfig")
	encode := func(pem []byte) string { return base64.StdEncoding.EncodeToString(pem) }
	writeTestFile(t, kubeconfig, fmt.Sprintf("apiVersion: v1\nkind: Config\nusers:\n- name: '*'\n  user: {client-certificate-data: %s, client-key-data: %s}\n",
		encode(certificate), encode(key)))
	configuration := filepath.Join(dir, "admission.yaml")
	writeTestFile(t, configuration, fmt.Sprintf(admissionConfiguration,
		fmt.Sprintf(admissionPlugin, "MutatingAdmissionWebhook", kubeconfig)+fmt.Sprintf(admissionPlugin, "ValidatingAdmissionWebhook", kubeconfig)))
	c, err := clustertest.StartCluster(t.Context(), "kube-apiserver=--admission-control-config-file="+configuration)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	s := &startupTest{T: t, cluster: c, bin: filepath.Dir(sharedCluster.binary), clientCA: clientCA}
	s.running = map[string]*clustertest.Process{}
	if s.client, err = client.New(c.Config(), client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	if s.certificate, err = tls.X509KeyPair(certificate, key); err != nil {
		t.Fatal(err)
	}
	if s.ports, err = clustertest.FreePorts(4); err != nil {
		t.Fatal(err)
	}
	return s
}

func writeTestFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (s *startupTest) address(i int) string { return fmt.Sprintf("127.0.0.1:%d", s.ports[i]) }

// start starts a program with a configuration and the token of its ServiceAccount, and does not wait until it is ready.
func (s *startupTest) start(namespace, name, configuration string) {
	s.Helper()
	kubeconfig, err := s.cluster.ServiceAccountKubeconfig(s.Context(), namespace, name)
	if err != nil {
		s.Fatal(err)
	}
	file := filepath.Join(s.TempDir(), name+".yaml")
	writeTestFile(s.T, file, "apiVersion: config.sluice.dev/v1alpha1\nkubeconfig: "+kubeconfig+"\nmetrics: \"0\"\n"+configuration)
	log := filepath.Join(s.TempDir(), name+".log")
	process, err := clustertest.StartProcess(s.Context(), log, nil, filepath.Join(s.bin, name), "--config", file)
	if err != nil {
		s.Fatal(err)
	}
	s.running[name] = process
	s.Cleanup(func() {
		if err := process.Stop(); err != nil {
			s.Error(err)
		}
	})
}

func (s *startupTest) readyz(i int) (status int, body string) {
	request, err := http.NewRequestWithContext(s.Context(), http.MethodGet, "http://"+s.address(i)+"/readyz", http.NoBody)
	if err != nil {
		s.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	raw, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(raw)
}

// apply applies the objects of an installation that selected returns, with the webhook's URL.
func (s *startupTest) apply(selected func(*unstructured.Unstructured) bool) {
	s.Helper()
	objects, err := manifests.Build(manifests.Production)
	if err != nil {
		s.Fatal(err)
	}
	for _, object := range objects {
		if !selected(object) {
			continue
		}
		webhooks, found, _ := unstructured.NestedSlice(object.Object, "webhooks")
		for i := range webhooks {
			config := webhooks[i].(map[string]any)
			path, _, _ := unstructured.NestedString(config, "clientConfig", "service", "path")
			config["clientConfig"] = map[string]any{"url": "https://localhost:" + portOf(s.address(3)) + path}
		}
		if found {
			if err := unstructured.SetNestedSlice(object.Object, webhooks, "webhooks"); err != nil {
				s.Fatal(err)
			}
		}
		clustertest.Eventually(s.T, func() error {
			return s.client.Apply(s.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("test"), client.ForceOwnership)
		})
	}
}

// Each program starts before the CRDs, says what it waits for, and becomes ready once they are there, without a restart. The
// webhook then answers the API server, which has a client certificate of the right name, and no other client.
func TestStartOrderAndClientCertificate(t *testing.T) {
	s := newStartupTest(t)
	dir := t.TempDir()
	s.apply(isIdentity)
	s.start(v1alpha1.SystemNamespace, "webhook", fmt.Sprintf("kind: WebhookConfig\nhealth: %s\nlisten: %s\nclientCA: %s\nclientNames: [%s]\ncertificates: {directory: %s}\n",
		s.address(0), s.address(3), s.clientCA, apiServerUser, dir))
	s.start(v1alpha1.SystemNamespace, "lifecycle", "kind: LifecycleConfig\nhealth: "+s.address(1)+"\n")
	s.start(v1alpha1.AgentNamespace, "gpuagent", fmt.Sprintf("kind: GPUAgentConfig\nhealth: %s\nnodeName: dgx-01\npodResources: %[2]s/kubelet.sock\nstateDir: %[2]s/state\nhostRoot: %[2]s\n",
		s.address(2), dir))
	names := []string{"webhook", "lifecycle", "gpuagent"}
	for i, name := range names {
		clustertest.Eventually(t, func() error {
			status, body := s.readyz(i)
			if status != http.StatusInternalServerError || !strings.Contains(body, "Waiting for CustomResourceDefinitions: the API server does not serve ") {
				return fmt.Errorf("%s: %d %s", name, status, body)
			}
			return nil
		})
	}
	isCRD := func(object *unstructured.Unstructured) bool { return object.GetKind() == "CustomResourceDefinition" }
	s.apply(isCRD)
	s.apply(func(object *unstructured.Unstructured) bool { return !isCRD(object) && !isIdentity(object) })
	s.createCertificate(dir)
	for i, name := range names {
		clustertest.EventuallyWithin(t, restartTimeout, func() error {
			status, body := s.readyz(i)
			if status == http.StatusOK || name == "gpuagent" && strings.Contains(body, "[+]caches ok") { // it has no driver here
				return nil
			}
			return fmt.Errorf("%s: %d %s", name, status, body)
		})
		if !s.running[name].Running() {
			t.Errorf("%s has ended", name)
		}
	}
	s.checkLeaseIsReleased(s.running["lifecycle"].PID())
	// The API server's certificate is accepted: the webhook denies a project without a department.
	project := newProject("client-certificate", func(p *v1alpha1.Project) { p.Spec.Department = "missing" })
	clustertest.Eventually(t, func() error {
		err := s.client.Create(t.Context(), project.DeepCopy(), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "admission webhook \"") || !strings.Contains(err.Error(), "missing") {
			return fmt.Errorf("the webhook did not answer: %w", err)
		}
		return nil
	})
	_, otherCertificate, otherKey := newClientCertificate(t, apiServerUser)
	foreign, err := tls.X509KeyPair(otherCertificate, otherKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		certificates []tls.Certificate
		accepted     bool
	}{
		"the API server's":  {[]tls.Certificate{s.certificate}, true},
		"none":              {nil, false},
		"another authority": {[]tls.Certificate{foreign}, false},
	} {
		if err := s.handshake(tt.certificates); (err == nil) != tt.accepted {
			t.Errorf("%s: %v, want accepted %t", name, err, tt.accepted)
		}
	}
}

// createCertificate runs the program that creates the webhook's certificate, and writes it into a directory as a kubelet does.
func (s *startupTest) createCertificate(dir string) {
	s.Helper()
	kubeconfig, err := s.cluster.ServiceAccountKubeconfig(s.Context(), v1alpha1.SystemNamespace, "certificates")
	if err != nil {
		s.Fatal(err)
	}
	file := filepath.Join(s.TempDir(), "certificates.yaml")
	writeTestFile(s.T, file, "apiVersion: config.sluice.dev/v1alpha1\nkind: WebhookConfig\nkubeconfig: "+kubeconfig+"\ncertificates: {dnsNames: [localhost]}\n")
	if output, err := exec.CommandContext(s.Context(), filepath.Join(s.bin, "webhook"), "certificates", "--config", file).CombinedOutput(); err != nil {
		s.Fatalf("%v\n%s", err, output)
	}
	var secret corev1.Secret
	if err := s.client.Get(s.Context(), client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: "webhook-certificates"}, &secret); err != nil {
		s.Fatal(err)
	}
	for _, name := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
		writeTestFile(s.T, filepath.Join(dir, name), string(secret.Data[name]))
	}
}

// isIdentity returns whether an object is needed before a program can have a ServiceAccount's token.
func isIdentity(object *unstructured.Unstructured) bool {
	return object.GetKind() == "Namespace" || object.GetKind() == "ServiceAccount"
}

// handshake connects with the webhook. With TLS 1.3 the server reports a refused certificate with the first read.
func (s *startupTest) handshake(certificates []tls.Certificate) error {
	connection, err := (&tls.Dialer{Config: &tls.Config{
		InsecureSkipVerify: true, NextProtos: []string{"http/1.1"},
		// Certificates of other authorities are sent as well.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if len(certificates) == 0 {
				return &tls.Certificate{}, nil
			}
			return &certificates[0], nil
		},
	}}).DialContext(s.Context(), "tcp", s.address(3))
	if err != nil {
		return err
	}
	defer connection.Close()
	if _, err := io.WriteString(connection, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); err != nil {
		return err
	}
	_, err = io.ReadAll(connection)
	var closed net.Error
	if errors.As(err, &closed) && closed.Timeout() {
		s.Fatal(err)
	}
	return err
}

// checkLeaseIsReleased ends lifecycle as the kubelet does. It releases its Lease, so that another replica need not wait for its
// expiry.
func (s *startupTest) checkLeaseIsReleased(pid int) {
	s.Helper()
	clientset, err := kubernetes.NewForConfig(s.cluster.Config())
	if err != nil {
		s.Fatal(err)
	}
	leases := clientset.CoordinationV1().Leases(v1alpha1.SystemNamespace)
	clustertest.Eventually(s.T, func() error {
		lease, err := leases.Get(s.Context(), "sluice-lifecycle", metav1.GetOptions{})
		if err == nil && ptr.Deref(lease.Spec.HolderIdentity, "") == "" {
			err = errors.New("the Lease has no holder")
		}
		return err
	})
	changes, err := leases.Watch(s.Context(), metav1.SingleObject(metav1.ObjectMeta{Name: "sluice-lifecycle"}))
	if err != nil {
		s.Fatal(err)
	}
	defer changes.Stop()
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		s.Fatal(err)
	}
	timeout := time.After(restartTimeout)
	for {
		select {
		case <-timeout:
			s.Fatal("lifecycle does not release its Lease")
		case change := <-changes.ResultChan():
			if lease, ok := change.Object.(*coordinationv1.Lease); ok && ptr.Deref(lease.Spec.HolderIdentity, "") == "" {
				return
			}
		}
	}
}

// newClientCertificate returns a new authority, and a certificate and key of a client that it signed, as PEM.
func newClientCertificate(t *testing.T, user string) (authority, certificate, key []byte) {
	t.Helper()
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "client-ca"}, signer)
	if err != nil {
		t.Fatal(err)
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: user}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca, own.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	if key, err = keyutil.MarshalPrivateKeyToPEM(own); err != nil {
		t.Fatal(err)
	}
	if authority, err = cert.EncodeCertificates(ca); err != nil {
		t.Fatal(err)
	}
	return authority, pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: raw}), key
}
