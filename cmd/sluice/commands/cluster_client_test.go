// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"sluice.dev/api/policytime"
	"sluice.dev/cmd/sluice/up"
)

// writeKubeconfig writes one whose context, cluster and server are named alike.
func writeKubeconfig(t *testing.T, dir, name, namespace string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: "https://" + name + ":6443"}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, Namespace: namespace}
	config.CurrentContext = name
	path := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// newEmbeddedCluster is the folder of an embedded cluster whose policy time is ahead.
func newEmbeddedCluster(t *testing.T, ahead time.Duration) string {
	t.Helper()
	dir := t.TempDir()
	mark := `{"apiVersion":"sim.sluice.dev/v1alpha1","kind":"EmbeddedCluster"}`
	if err := os.WriteFile(filepath.Join(dir, "cluster.json"), []byte(mark), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := up.OpenClock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Advance(ahead); err != nil {
		t.Fatal(err)
	}
	return dir
}

func clockOffset(c policytime.Clock) time.Duration { return time.Until(c.Now()).Round(time.Hour) }

func TestClusterClientUsesClockOfSelectedCluster(t *testing.T) {
	near, far := newEmbeddedCluster(t, time.Hour), newEmbeddedCluster(t, 48*time.Hour)
	ofNear, ofFar := writeKubeconfig(t, near, "near", "lab"), writeKubeconfig(t, far, "far", "")
	elsewhere := writeKubeconfig(t, t.TempDir(), "real", "")
	list := string(filepath.ListSeparator)
	tests := map[string]struct {
		env     string
		options ClusterOptions
		ahead   time.Duration
		host    string
	}{
		"the kubeconfig's folder":         {ofNear, ClusterOptions{}, time.Hour, "near"},
		"a kubeconfig that was named":     {ofNear, ClusterOptions{Kubeconfig: ofFar}, 48 * time.Hour, "far"},
		"a folder that was named":         {elsewhere, ClusterOptions{Dir: far}, 48 * time.Hour, "far"},
		"a folder and another kubeconfig": {ofNear, ClusterOptions{Dir: far, Kubeconfig: elsewhere}, 48 * time.Hour, "real"},
		"no embedded cluster":             {elsewhere, ClusterOptions{}, 0, "real"},
		"the first of several":            {ofNear + list + ofFar, ClusterOptions{}, time.Hour, "near"},
		"a context of the second":         {ofNear + list + ofFar, ClusterOptions{Context: "far"}, 48 * time.Hour, "far"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", tc.env)
			c, err := NewClusterClient(tc.options)
			if err != nil {
				t.Fatal(err)
			}
			if got := clockOffset(c.Clock); got != tc.ahead {
				t.Errorf("policy time is %v ahead, want %v", got, tc.ahead)
			}
			if want := "https://" + tc.host + ":6443"; c.Config.Host != want {
				t.Errorf("it talks to %s, want %s", c.Config.Host, want)
			}
		})
	}
}

func TestClusterClientNamespaceDefaultsToContext(t *testing.T) {
	t.Setenv("KUBECONFIG", writeKubeconfig(t, t.TempDir(), "real", "lab"))
	for named, want := range map[string]string{"": "lab", "thesis": "thesis"} {
		c, err := NewClusterClient(ClusterOptions{Namespace: named})
		if err != nil {
			t.Fatal(err)
		}
		if c.Namespace != want {
			t.Errorf("the namespace is %q, want %q", c.Namespace, want)
		}
	}
}

func TestNewClusterClientErrors(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	broken := newEmbeddedCluster(t, time.Hour)
	outside := writeKubeconfig(t, t.TempDir(), "real", "")
	ofBroken := writeKubeconfig(t, broken, "broken", "")
	if err := os.WriteFile(filepath.Join(broken, policytime.FileName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		env     string
		options ClusterOptions
		want    string
	}{
		"nothing configured":        {filepath.Join(home, "none"), ClusterOptions{}, "--kubeconfig"},
		"a folder of no cluster":    {outside, ClusterOptions{Dir: home, Kubeconfig: outside}, "no embedded cluster"},
		"a context that is not":     {outside, ClusterOptions{Context: "moon"}, "moon"},
		"a clock that is damaged":   {ofBroken, ClusterOptions{}, "policy time"},
		"a kubeconfig that is none": {outside, ClusterOptions{Kubeconfig: filepath.Join(home, "none")}, "none"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", tc.env)
			if _, err := NewClusterClient(tc.options); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("err = %v, want it to say %q", err, tc.want)
			}
		})
	}
}
