// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sluice.dev/api/config"
	agentconfig "sluice.dev/gpuagent/agent"
	lifecycleconfig "sluice.dev/lifecycle/config"
	"sluice.dev/manifests"
	webhookconfig "sluice.dev/webhook"
)

// configurationIn returns the configuration file in an installed ConfigMap.
func configurationIn(t *testing.T, name string, amend func(*unstructured.Unstructured) error) string {
	t.Helper()
	objects, err := manifests.BuildOverlay(overlay)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if object.GetKind() != "ConfigMap" || object.GetName() != name {
			continue
		}
		if err := amend(object); err != nil {
			t.Fatal(err)
		}
		text, _, err := unstructured.NestedString(object.Object, "data", name+".yaml")
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	t.Fatalf("no ConfigMap %s", name)
	return ""
}

// The components accept the amended configurations, which keep what the shipped ones set.
func TestAmendedConfigurations(t *testing.T) {
	s := componentContext{clockFile: "/cluster/clock.json", self: "sluice-lab", mail: mailAccess{server: "127.0.0.1:2525", caFile: "/ca.crt"}}
	webhook := configurationIn(t, webhookProgram, func(object *unstructured.Unstructured) error {
		return amendConfiguration(object, s.amendWebhook)
	})
	lifecycle := configurationIn(t, lifecycleProgram, func(object *unstructured.Unstructured) error {
		return amendConfiguration(object, s.amendLifecycle)
	})
	agent := configurationIn(t, agentProgram, func(object *unstructured.Unstructured) error {
		return amendConfiguration(object, s.amendAgent)
	})
	t.Setenv(agentconfig.NodeNameVariable, "dgx-1")
	for text, file := range map[string]config.File{
		webhook: &webhookconfig.Config{}, lifecycle: &lifecycleconfig.Config{}, agent: &agentconfig.Config{},
	} {
		if err := config.Parse([]byte(text), file); err != nil {
			t.Errorf("%v in\n%s", err, text)
		}
	}
	// The launcher replaces only what the file names.
	for text, wants := range map[string][]string{
		webhook:   {"listen: :9443", "health: :8081", "metrics: :8080", "clockFile: /cluster/clock.json", "drainPeriod: 0s"},
		lifecycle: {"gpuPodsOutside: Deny", "disabled: true", "server: 127.0.0.1:2525", "health: :8081"},
		agent: {
			"proc: /host/proc", "stateDir: /var/lib/sluice/gpuagent",
			"podResources: /var/lib/kubelet/pod-resources/kubelet.sock", "command: sluice-lab simulate kubelet",
		},
	} {
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in\n%s", want, text)
			}
		}
	}
	if strings.Contains(agent, "nodeName") {
		t.Errorf("one file is for the agents of all nodes:\n%s", agent)
	}
}
