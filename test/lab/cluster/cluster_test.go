// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"sluice.dev/test/lab/cluster/process"
)

// TestCluster tests the life of a cluster in one test, because each start takes seconds.
func TestCluster(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	c := startCluster(t, dir, true)
	t.Run("runs the pinned Kubernetes", func(t *testing.T) { testVersion(t, c) })
	t.Run("rejects anonymous users", func(t *testing.T) { testAnonymous(t, c) })
	t.Run("gives only the API server access to etcd", func(t *testing.T) { testEtcdAccess(t, c) })
	if !t.Run("creates and binds pods", func(t *testing.T) { testPods(t, c) }) {
		t.FailNow() // its node and Deployment are missing below
	}
	t.Run("authenticates a service account by token", func(t *testing.T) { testServiceAccount(t, c) })
	t.Run("issues serving certificates", func(t *testing.T) { testServing(t, c) })
	t.Run("locks its folder", func(t *testing.T) { testOwnCluster(t, dir) })
	t.Run("restarts each killed process", func(t *testing.T) { testComponentRestarts(t, c) })
	t.Run("gives only the owner access to its folder", func(t *testing.T) { testFileModes(t, dir) })
	t.Run("recognizes all entries of its folder", func(t *testing.T) { testClusterEntries(t, dir) })

	before := usageOf(t, c)
	account, err := c.ServiceAccountKubeconfig(t.Context(), "default", "webhook")
	if err != nil {
		t.Fatal(err)
	}
	stop(t, c)
	t.Run("leaves no process and no port", func(t *testing.T) { before.assertReleased(t) })
	if _, err := os.Stat(dir); err != nil {
		t.Fatalf("the kept folder: %v", err)
	}

	c = startCluster(t, dir, false)
	t.Run("resumes", func(t *testing.T) {
		if got := c.folder.state.Ports; got != before.ports {
			t.Errorf("ports %+v, before %+v", got, before.ports)
		}
		deployment, err := client(t, c.Kubeconfig()).AppsV1().Deployments("default").Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil || *deployment.Spec.Replicas != 3 {
			t.Errorf("the old object: %v", err)
		}
		if got := whoami(t, account).Username; got != "system:serviceaccount:default:webhook" {
			t.Errorf("the old kubeconfig is %q", got)
		}
	})
	before = usageOf(t, c)
	stop(t, c)
	t.Run("leaves no process, port or file", func(t *testing.T) {
		before.assertReleased(t)
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s remains: %v", dir, err)
		}
	})
}

func testVersion(t *testing.T, c *Cluster) {
	version, err := client(t, c.Kubeconfig()).Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(version.GitVersion, "v"+version.Major+"."+version.Minor+".") || version.Major != "1" {
		t.Errorf("version %+v", version)
	}
}

func testAnonymous(t *testing.T, c *Cluster) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.CA().CertPEM())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	for _, path := range []string{"/api", "/readyz"} {
		response, err := (&http.Client{Transport: transport}).Get(c.Config().Host + path)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %s", path, response.Status)
		}
	}
}

// testEtcdAccess checks that etcd rejects clients without a certificate, and the
// administrator of Kubernetes.
func testEtcdAccess(t *testing.T, c *Cluster) {
	etcdCA, err := OpenCA(c.folder.pathOf("pki"), "etcd-ca")
	if err != nil {
		t.Fatal(err)
	}
	apiServer, err := etcdCA.Client(APIServer)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := c.CA().Client(adminUser, adminGroup)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(etcdCA.CertPEM())
	for _, tt := range []struct {
		name    string
		pair    KeyPair
		allowed bool
	}{
		{"the API server", apiServer, true},
		{"no certificate", KeyPair{}, false},
		{"the administrator", admin, false},
	} {
		config := &tls.Config{RootCAs: roots}
		if tt.pair.Cert != nil {
			certificate, err := tls.X509KeyPair(tt.pair.Cert, tt.pair.Key)
			if err != nil {
				t.Fatal(err)
			}
			// Unlike Certificates, this also sends a certificate of another authority.
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil }
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
		response, err := client.Get(httpsURL(c.folder.state.Ports.Etcd) + "/health")
		if err == nil {
			response.Body.Close()
		}
		if allowed := err == nil && response.StatusCode == http.StatusOK; allowed != tt.allowed {
			t.Errorf("%s: allowed is %t (%v), want %t", tt.name, allowed, err, tt.allowed)
		}
	}
}

// testPods checks that the controllers create a Deployment's pods and the scheduler binds
// them to a node.
func testPods(t *testing.T, c *Cluster) {
	api := client(t, c.Kubeconfig())
	_, err := api.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](3),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
				Spec: corev1.PodSpec{
					// No kubelet serves this node: after a minute it is tainted
					// unreachable.
					Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
					Containers:  []corev1.Container{{Name: "web", Image: "web"}},
				},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	addNode(t, api, "node-1")
	awaitBound(t, api, "app=web", 3)
}

func addNode(t *testing.T, api kubernetes.Interface, name string) {
	t.Helper()
	room := corev1.ResourceList{"pods": resource.MustParse("1000"), "cpu": resource.MustParse("64"), "memory": resource.MustParse("64Gi")}
	node, err := api.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status = corev1.NodeStatus{Capacity: room, Allocatable: room, Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()},
	}}
	node.ResourceVersion = "" // controllers change the new node, too
	if _, err := api.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func awaitBound(t *testing.T, api kubernetes.Interface, selector string, want int) {
	t.Helper()
	eventually(t, func() error {
		pods, err := api.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return err
		}
		bound := slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.Spec.NodeName == "" })
		if len(bound) != want {
			return fmt.Errorf("%d pods of %s are bound, want %d", len(bound), selector, want)
		}
		return nil
	})
}

func testServiceAccount(t *testing.T, c *Cluster) {
	admin := client(t, c.Kubeconfig())
	if _, err := c.ServiceAccountKubeconfig(t.Context(), "default", "webhook"); err == nil ||
		!strings.Contains(err.Error(), `"webhook" not found`) {
		t.Errorf("token of a missing account: %v", err)
	}
	_, err := admin.CoreV1().ServiceAccounts("default").Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "webhook"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = admin.RbacV1().RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "webhook"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "webhook"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	path, err := c.ServiceAccountKubeconfig(t.Context(), "default", "webhook")
	if err != nil {
		t.Fatal(err)
	}
	if got := whoami(t, path).Username; got != "system:serviceaccount:default:webhook" {
		t.Errorf("authenticated as %s", got)
	}
	if _, err := client(t, path).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}

	file := strings.TrimSuffix(path, ".kubeconfig") + ".token"
	first := readFiles(t, file)
	c.tokens.renewDue(t.Context(), time.Now().Add(11*time.Hour))
	if readFiles(t, file) != first {
		t.Error("the token was renewed before half of its lifetime")
	}
	c.tokens.renewDue(t.Context(), time.Now().Add(13*time.Hour))
	if readFiles(t, file) == first {
		t.Error("the token was not renewed after half of its lifetime")
	}
	if got := whoami(t, path).Username; got != "system:serviceaccount:default:webhook" {
		t.Errorf("authenticated with the next token as %s", got)
	}
}

func testServing(t *testing.T, c *Cluster) {
	dir := filepath.Join(c.Dir(), "components", "webhook", "certificates")
	if err := c.IssueServing("webhook.default.svc", dir); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(readFiles(t, filepath.Join(dir, "ca.crt"))))
	for _, name := range []string{"webhook.default.svc", "127.0.0.1", "localhost"} {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
			t.Error(err)
		}
	}
}

func testOwnCluster(t *testing.T, dir string) {
	_, err := Start(t.Context(), Options{Dir: dir})
	if want := fmt.Sprintf("the cluster's folder %s: process %d runs a cluster there", dir, os.Getpid()); err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q in it", err, want)
	}
	if pid, err := Holder(dir); err != nil || pid != os.Getpid() {
		t.Errorf("its holder is %d, %v", pid, err)
	}
	if err := Remove(dir); err == nil || !strings.Contains(err.Error(), "locked by process") {
		t.Errorf("removed a running cluster: %v", err)
	}
}

// testComponentRestarts kills each process, and checks that it restarts and works again.
func testComponentRestarts(t *testing.T, c *Cluster) {
	api := client(t, c.Kubeconfig())
	for n, name := range []string{Scheduler, ControllerManager, APIServer, Etcd} {
		t.Run(name, func(t *testing.T) {
			before := componentStatus(t, c, name)
			victim, err := os.FindProcess(before.PID)
			if err != nil {
				t.Fatal(err)
			}
			if err := victim.Kill(); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			eventually(t, func() error {
				if s := componentStatus(t, c, name); s.State != process.Running || s.Restarts != before.Restarts+1 ||
					s.LastExit != "signal: killed" {
					return fmt.Errorf("status %+v", s)
				}
				return nil
			})
			job := fmt.Sprintf("after-%d", n)
			eventually(t, func() error {
				err := createReplicaSet(t.Context(), api, job)
				if apierrors.IsAlreadyExists(err) {
					return nil // an earlier attempt whose response was lost
				}
				return err
			})
			awaitBound(t, api, "app="+job, 1)
			t.Logf("works again after %s", time.Since(begin).Round(10*time.Millisecond))
		})
	}
}

func createReplicaSet(ctx context.Context, api kubernetes.Interface, name string) error {
	labels := map[string]string{"app": name}
	_, err := api.AppsV1().ReplicaSets("default").Create(ctx, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.ReplicaSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					// No kubelet serves this node: after a minute it is tainted
					// unreachable.
					Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
					Containers:  []corev1.Container{{Name: "web", Image: "web"}},
				},
			},
		},
	}, metav1.CreateOptions{})
	return err
}

func testFileModes(t *testing.T, dir string) {
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, os.ErrNotExist) { // etcd renames files meanwhile
				return nil
			}
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return nil //nolint:nilerr // removed meanwhile, as above
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// testClusterEntries checks that Stop recognizes, and so removes, all files of a cluster.
func testClusterEntries(t *testing.T, dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !clusterEntryPattern.MatchString(entry.Name()) {
			t.Errorf("%s does not match clusterEntryPattern", entry.Name())
		}
	}
}

func whoami(t *testing.T, kubeconfig string) authenticationv1.UserInfo {
	t.Helper()
	review, err := client(t, kubeconfig).AuthenticationV1().SelfSubjectReviews().Create(t.Context(),
		&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.UserInfo
}
