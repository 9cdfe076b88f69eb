// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/golden"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sluice.dev/api"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/test/lab/up"
)

// The golden files are compared byte for byte.
func init() { golden.NormalizeCRLFToLF = false }

// tableText returns the text of a table.
func tableText(t *testing.T, table printer.Table) string {
	t.Helper()
	var out bytes.Buffer
	if err := table.Write(&out, false); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// jsonText returns the JSON output of a value.
func jsonText(t *testing.T, value any) string {
	t.Helper()
	var out bytes.Buffer
	if err := printer.WriteJSON(&out, value); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// newFakeClient returns a cluster with objects.
func newFakeClient(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}

// runCommand runs sluice-lab with arguments and returns its output.
func runCommand(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var output bytes.Buffer
	root := NewRootCommand("sluice")
	root.SetArgs(args)
	root.SetOut(&output)
	root.SetErr(&output)
	err := root.ExecuteContext(t.Context())
	return output.String(), err
}

// newEmbeddedDir returns the folder of an embedded cluster that does not run, with
// policy time ahead.
func newEmbeddedDir(t *testing.T, ahead time.Duration) string {
	t.Helper()
	dir := t.TempDir()
	mark := `{"apiVersion":"sim.sluice.dev/v1alpha1","kind":"EmbeddedCluster"}`
	if err := os.WriteFile(filepath.Join(dir, "cluster.json"), []byte(mark), 0o600); err != nil {
		t.Fatal(err)
	}
	if ahead == 0 {
		return dir
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

// writeKubeconfig writes a kubeconfig with a context, cluster and server of one name.
func writeKubeconfig(t *testing.T, dir, name string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: "https://" + name + ":6443"}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name}
	config.CurrentContext = name
	path := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// The commands find the cluster by its kubeconfig.
func TestEmbeddedCommandsUseKubeconfig(t *testing.T) {
	dir := newEmbeddedDir(t, 48*time.Hour)
	t.Setenv("KUBECONFIG", writeKubeconfig(t, dir, "embedded"))
	for args, want := range map[string]string{
		"time show": "48h ahead of real time",
		"mail list": "No mails found.",
	} {
		if output, err := runCommand(t, strings.Fields(args)...); err != nil || !strings.Contains(output, want) {
			t.Errorf("sluice %s: %v, %q; want %q", args, err, output, want)
		}
	}
	if _, err := runCommand(t, "status"); !errors.Is(err, up.ErrNotRunning) {
		t.Errorf("sluice status: %v, want that the cluster does not run", err)
	}
	t.Setenv("KUBECONFIG", writeKubeconfig(t, t.TempDir(), "real"))
	for _, args := range []string{"status", "time show", "time next", "mail list", "mail show 1"} {
		if _, err := runCommand(t, strings.Fields(args)...); !errors.Is(err, up.ErrNoCluster) || !strings.Contains(err.Error(), "--dir") {
			t.Errorf("sluice %s: %v, want that the cluster is not embedded", args, err)
		}
	}
}
