// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
)

func killProcess(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// asAgent has the rights of a node's agent, by the very token that it has.
func asAgent(t *testing.T, node string) client.Client {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(shared.dir, "components", "gpuagent-"+node, "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var agent struct {
		Kubeconfig string `json:"kubeconfig"`
	}
	if err := yaml.Unmarshal(raw, &agent); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", agent.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: shared.admin.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// An agent speaks of its own node, and of how its GPUs are; not of another's, nor of
// how they shall be.
func TestAnAgentSpeaksOfItsOwnNode(t *testing.T) {
	agent := asAgent(t, "dgx-1")
	node := func(name string) *v1alpha1.GPUNode {
		return &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	status := client.RawPatch(types.MergePatchType, []byte(`{"status":{"driverVersion":"1.2.3"}}`))
	spec := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"nodePool":"mine"}}`))
	if err := agent.Status().Patch(t.Context(), node("dgx-1"), status, client.DryRunAll); err != nil {
		t.Errorf("of its own node: %v", err)
	}
	err := agent.Status().Patch(t.Context(), node("dgx-2"), status)
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "its own node only: this is dgx-2, and its token is of dgx-1") {
		t.Errorf("of another node: %v", err)
	}
	for _, name := range []string{"dgx-1", "dgx-2"} {
		if err := agent.Patch(t.Context(), node(name), spec); !apierrors.IsForbidden(err) {
			t.Errorf("how the GPUs of %s shall be: %v", name, err)
		}
		if err := agent.Delete(t.Context(), node(name)); !apierrors.IsForbidden(err) {
			t.Errorf("the end of %s: %v", name, err)
		}
	}
}
