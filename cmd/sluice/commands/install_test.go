// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiconfig "sluice.dev/api/config"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/doctor"
	"sluice.dev/manifests"
	"sluice.dev/test/clustertest"
)

// On a real API server: `sluice install` installs Sluice only in the cluster of the named context, and only after a yes.
func TestInstallInNamedContext(t *testing.T) {
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
	install := func(answer string, arguments ...string) (string, error) {
		root, out := NewRootCommand(), &bytes.Buffer{}
		root.SetArgs(append([]string{"install"}, arguments...))
		root.SetIn(strings.NewReader(answer))
		root.SetOut(out)
		root.SetErr(out)
		err := root.ExecuteContext(t.Context())
		return out.String(), err
	}
	if named, err := (&installFlags{kubeconfig: path, context: "mine"}).restConfig(); err != nil || named.QPS >= 0 {
		t.Errorf("five requests a second for hundreds of objects: %v", err) // client-go's default
	}
	built := apiconfig.Version
	t.Cleanup(func() { apiconfig.Version = built })
	apiconfig.Version = "v0.1.0"
	scheme, err := doctor.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	admin, err := client.New(c.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // else the API server calls the webhook, which does not run, for the objects of other tests
		objects, err := manifests.Build(manifests.Production)
		if err != nil {
			t.Error(err)
		}
		for _, object := range objects {
			if object.GetKind() == "CustomResourceDefinition" || object.GetKind() == "Namespace" {
				continue
			}
			if err := client.IgnoreNotFound(admin.Delete(context.WithoutCancel(t.Context()), object)); err != nil {
				t.Error(err)
			}
		}
	})
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
		"too many pods":     {"yes\n", append(named[:len(named):len(named)], "--lifecycle-replicas", "11"), "--lifecycle-replicas 11: want a number from 1 to 10"},
		"no context":        {"yes\n", []string{"--yes"}, `"context" not set`},
		"an empty context":  {"yes\n", []string{"--context", "", "--image-registry", "r"}, `no context ""`},
		"no images":         {"yes\n", []string{"--context", "mine"}, "--image-registry: required"},
		"an unknown layout": {"yes\n", append(named[:len(named):len(named)], "--overlay", "big"), `overlay "big" is none of`},
		"not reachable":     {"yes\n", []string{"--context", "gone", "--image-registry", "r"}, "reach https://127.0.0.1:1 of context gone"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := install(tc.answer, tc.arguments...)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q\n%s", err, tc.want, out)
			}
			// The namespace can be another test's.
			if err := admin.Get(t.Context(), key, &appsv1.Deployment{}); client.IgnoreNotFound(err) != nil || err == nil {
				t.Errorf("something was installed: %v", err)
			}
		})
	}

	out, err := install("yes\n", named...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"Context:    mine\nServer:     " + c.Config().Host, "Installed:  nothing of Sluice\n", "Type yes to install", "Sluice is installed",
		"  kubectl --context mine -n sluice-system rollout status", "  sluice doctor --context mine\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	if err := admin.Get(t.Context(), key, webhook); err != nil {
		t.Fatal(err)
	}
	expectImage := func(want string) {
		t.Helper()
		if err := admin.Get(t.Context(), key, webhook); err != nil {
			t.Fatal(err)
		}
		if image := webhook.Spec.Template.Spec.Containers[0].Image; image != "registry.example.org/sluice/sluice-webhook:"+want {
			t.Errorf("the webhook has the image %s, want %s", image, want)
		}
	}
	expectImage("v0.1.0")
	withTag := func(tag string, more ...string) []string {
		apiconfig.Version = tag // the program and its images are of one version
		return append([]string{"--context", "mine", "--image-registry", "registry.example.org/sluice", "--yes"}, more...)
	}
	// A repetition upgrades it, with the numbers of pods that it names, and prints the file that was given.
	out, err = install("", withTag("v0.2.0", "--kubeconfig", path, "--lifecycle-replicas", "3")...)
	if err != nil || !strings.Contains(out, "\nInstalled:  Deployment sluice-system/webhook v0.1.0\n") ||
		!strings.Contains(out, "  sluice doctor --kubeconfig "+path+" --context mine\n") {
		t.Errorf("again: %v\n%s", err, out)
	}
	expectImage("v0.2.0")
	var lifecycle appsv1.Deployment
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: "lifecycle"}, &lifecycle); err != nil || *lifecycle.Spec.Replicas != 3 {
		t.Errorf("lifecycle has %d replicas: %v", *lifecycle.Spec.Replicas, err)
	}
	// An older version needs a flag.
	if out, err := install("", withTag("v0.1.9")...); err == nil || !strings.Contains(err.Error(), "--allow-downgrade") || !strings.Contains(err.Error(), "the manifests of this program are of v0.1.9, which is older") {
		t.Errorf("an older version: %v\n%s", err, out)
	}
	expectImage("v0.2.0")
	if out, err := install("", withTag("v0.1.9", "--allow-downgrade")...); err != nil {
		t.Errorf("an older version with the flag: %v\n%s", err, out)
	}
	expectImage("v0.1.9")
	var projects apiextensionsv1.CustomResourceDefinition
	if err := admin.Get(t.Context(), client.ObjectKey{Name: "projects.sluice.dev"}, &projects); err != nil || projects.Labels[v1alpha1.LabelVersion] != "v0.2.0" {
		t.Errorf("an older version replaced the CRDs of v0.2.0 by those of %s: %v", projects.Labels[v1alpha1.LabelVersion], err)
	}
	// What another program has set stays, and nothing else is written.
	webhook.ManagedFields = nil
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":3}}`))
	if err := admin.Patch(t.Context(), webhook, patch, client.FieldOwner("another")); err != nil {
		t.Fatal(err)
	}
	out, err = install("", withTag("v0.3.0")...)
	if err == nil || !strings.Contains(err.Error(), "another program has installed Sluice") ||
		!strings.Contains(err.Error(), `conflict with "another" using apps/v1: .spec.replicas`) || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("a field of another program: %v\n%s", err, out)
	}
	expectImage("v0.1.9")
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(&lifecycle), &lifecycle); err != nil ||
		!strings.HasSuffix(lifecycle.Spec.Template.Spec.Containers[0].Image, ":v0.1.9") {
		t.Errorf("a failed installation changed lifecycle: %v, %v", lifecycle.Spec.Template.Spec.Containers[0].Image, err)
	}
}
