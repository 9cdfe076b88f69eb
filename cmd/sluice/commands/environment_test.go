// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gotest.tools/v3/golden"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/api"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
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

// newFakeClient returns a cluster with objects, whose calls can be replaced.
func newFakeClient(t *testing.T, calls interceptor.Funcs, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(testrestmapper.TestOnlyStaticRESTMapper(scheme)).
		WithIndex(&corev1.Event{}, "reason", func(o client.Object) []string { return []string{o.(*corev1.Event).Reason} }).
		WithStatusSubresource(&v1alpha1.Extension{}, &v1alpha1.AdmissionParameters{}).WithObjects(objects...).WithInterceptorFuncs(calls).Build()
}

func forbiddenError() error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "", errors.New("not you"))
}

// runCommand runs sluice with arguments and returns its output.
func runCommand(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var output bytes.Buffer
	root := NewRootCommand()
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
	file, err := policytime.OpenFile(filepath.Join(dir, policytime.FileName), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Advance(ahead); err != nil {
		t.Fatal(err)
	}
	return dir
}

// writeKubeconfig writes a kubeconfig with a context, cluster and server of one name.
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
