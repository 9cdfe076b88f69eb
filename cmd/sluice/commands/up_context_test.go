// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/test/cluster/clustertest"
)

// On a real API server: `sluice up` installs Sluice only in the cluster of the named context, and only after a yes.
func TestUpInstallsInNamedContext(t *testing.T) {
	c := clustertest.Start(t)
	if c.Attached() {
		t.Skip("it would install Sluice in the user's own cluster")
	}
	config, err := clientcmd.LoadFromFile(c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.Contexts["mine"] = config.Contexts[config.CurrentContext]
	config.Clusters["gone"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
	config.Contexts["gone"] = &clientcmdapi.Context{Cluster: "gone"}
	config.CurrentContext = "gone"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", path)
	up := func(answer string, arguments ...string) (string, error) {
		root, out := NewRootCommand(), &bytes.Buffer{}
		root.SetArgs(append([]string{"up"}, arguments...))
		root.SetIn(strings.NewReader(answer))
		root.SetOut(out)
		root.SetErr(out)
		err := root.ExecuteContext(t.Context())
		return out.String(), err
	}
	admin, err := client.New(c.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	webhook := &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: "webhook"}

	named := []string{"--context", "mine", "--image-registry", "registry.example.org/sluice", "--image-tag", "v0.1.0"}
	for name, tc := range map[string]struct {
		answer    string
		arguments []string
		want      string
	}{
		"no answer":         {"", named, "not confirmed"},
		"no":                {"no\n", named, "not confirmed"},
		"another context":   {"yes\n", []string{"--context", "mien", "--image-registry", "r"}, `no context "mien"; it has `},
		"no context":        {"yes\n", []string{"--yes"}, "--yes: needs --context"},
		"an empty context":  {"yes\n", []string{"--context", "", "--image-registry", "r"}, `no context ""`},
		"no images":         {"yes\n", []string{"--context", "mine"}, "--image-registry: required"},
		"an unknown layout": {"yes\n", append(named[:len(named):len(named)], "--overlay", "big"), `overlay "big" is none of`},
		"a folder":          {"yes\n", append(named[:len(named):len(named)], "--dir", "x"), "[context dir] were all set"},
		"not reachable":     {"yes\n", []string{"--context", "gone", "--image-registry", "r"}, "reach https://127.0.0.1:1 of context gone"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := up(tc.answer, tc.arguments...)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q\n%s", err, tc.want, out)
			}
			if err := admin.Get(t.Context(), client.ObjectKey{Name: v1alpha1.SystemNamespace}, &corev1.Namespace{}); client.IgnoreNotFound(err) != nil || err == nil {
				t.Errorf("something was installed: %v", err)
			}
		})
	}

	out, err := up("yes\n", named...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"Context:    mine\nServer:     " + c.Config().Host, "Type yes to install", "Sluice is installed"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	if err := admin.Get(t.Context(), key, webhook); err != nil {
		t.Fatal(err)
	}
	if image := webhook.Spec.Template.Spec.Containers[0].Image; image != "registry.example.org/sluice/sluice-webhook:v0.1.0" {
		t.Errorf("the webhook has the image %s", image)
	}
	// A repetition upgrades it. What another program has set is no business of this one.
	if out, err := up("", append(named, "--yes")...); err != nil {
		t.Errorf("again: %v\n%s", err, out)
	}
	webhook.ManagedFields = nil
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":3}}`))
	if err := admin.Patch(t.Context(), webhook, patch, client.FieldOwner("another")); err != nil {
		t.Fatal(err)
	}
	if out, err := up("", append(named, "--yes")...); err == nil || !strings.Contains(err.Error(), "another program has installed Sluice") {
		t.Errorf("a field of another program: %v\n%s", err, out)
	}
}
