// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// The namespace is written into the context that is used, in the file that has it, and nothing else changes.
func TestSetNamespace(t *testing.T) {
	near, far := writeKubeconfig(t, t.TempDir(), "near", "lab"), writeKubeconfig(t, t.TempDir(), "far", "")
	t.Setenv("KUBECONFIG", near+string(filepath.ListSeparator)+far)
	namespaces := func() map[string]string {
		found := map[string]string{}
		for _, path := range []string{near, far} {
			config, err := clientcmd.LoadFromFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if len(config.Contexts) != 1 || len(config.Clusters) != 1 {
				t.Fatalf("%s has %d contexts", path, len(config.Contexts))
			}
			for name, context := range config.Contexts {
				found[name] = context.Namespace
			}
		}
		return found
	}
	for _, step := range []struct {
		args                  []string
		namespace             string
		wantContext, wantFile string
		want                  map[string]string
	}{
		{nil, "thesis", "near", near, map[string]string{"near": "thesis", "far": ""}},
		{[]string{"--context", "far"}, "course", "far", far, map[string]string{"near": "thesis", "far": "course"}},
		{[]string{"--as", "anna", "--token", "mine"}, "vision", "near", near, map[string]string{"near": "vision", "far": "course"}},
	} {
		flags, _ := parseClusterFlags(t, step.args...)
		name, file, err := flags.setNamespace(step.namespace)
		if err != nil || name != step.wantContext || file != step.wantFile {
			t.Errorf("%v: context %q of %q, %v; want %q of %q", step.args, name, file, err, step.wantContext, step.wantFile)
		}
		if diff := cmp.Diff(step.want, namespaces()); diff != "" {
			t.Errorf("%v: namespaces differ (-want +got):\n%s", step.args, diff)
		}
	}
	raw, err := os.ReadFile(near)
	if err != nil || strings.Contains(string(raw), "mine") || strings.Contains(string(raw), "anna") {
		t.Errorf("the flags of the command are in the kubeconfig: %v\n%s", err, raw)
	}
	flags, _ := parseClusterFlags(t, "--context", "moon")
	if _, _, err := flags.setNamespace("x"); err == nil || !strings.Contains(err.Error(), "no current context") {
		t.Errorf("an unknown context: %v", err)
	}
}

// An administrator lists all projects, and a member those that the member may get; one was deleted since.
func TestProjectList(t *testing.T) {
	admin := newClocksClient(t)
	for name, c := range map[string]client.Client{"administrator": admin, "member": asProjectMember(admin)} {
		projects, err := listProjects(t.Context(), c, nil)
		want := []projectName{{Name: "thesis-mueller", Namespace: "thesis"}}
		if diff := cmp.Diff(want, newProjectNames(projects)); err != nil || diff != "" {
			t.Errorf("%s: %v; projects differ (-want +got):\n%s", name, err, diff)
		}
	}
	stranger := interceptor.NewClient(admin, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return forbiddenError()
		},
		Create: answerSelfReviews("eve"),
	})
	if projects, err := listProjects(t.Context(), stranger, nil); err != nil || len(projects) != 0 {
		t.Errorf("a member of nothing has %d projects, %v", len(projects), err)
	}
	broken := interceptor.NewClient(admin, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return forbiddenError()
		},
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return forbiddenError()
		},
	})
	if _, err := listProjects(t.Context(), broken, nil); err == nil || !strings.Contains(err.Error(), "list projects: get your user name") {
		t.Errorf("without reviews: %v", err)
	}
}
