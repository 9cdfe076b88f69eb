// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"encoding/json"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/policies/engine"
	"sluice.dev/webhook/evaluation"
	"sluice.dev/webhook/pod"
)

// A team's policy composes with the built-in policies, and with those of other teams, also on what it adds: the others
// apply to the added elements, and the pod then changes no more. Where policies exclude each other, the message names
// both and never blames a built-in policy alone. Guards invariant 1 of the design.
func TestPoliciesComposeOnAddedElements(t *testing.T) {
	const sidecar = `overrides := {"spec": {"containers": [{"name": "logs", "image": "registry.example.org/logs:1"}]}}`
	base := newBase(t)
	for name, tc := range map[string]struct {
		policies []string
		// container is an added container, which gets the value void for NVIDIA_VISIBLE_DEVICES.
		container string
		// denial are parts of the denial; none if the pod is admitted.
		denial []string
	}{
		"overrides add a container": {policies: []string{sidecar}, container: "logs"},
		"defaults add a container":  {policies: []string{strings.Replace(sidecar, "overrides", "defaults", 1)}, container: "logs"},
		"overrides add an init container": {
			policies: []string{strings.Replace(sidecar, "containers", "initContainers", 1)}, container: "logs",
		},
		"overrides add a container with a variable, a volume and its mount": {
			policies: []string{`overrides := {"spec": {
			"volumes": [{"name": "log", "emptyDir": {}}],
			"containers": [{"name": "logs", "image": "x", "env": [{"name": "LEVEL", "value": "1"}], "volumeMounts": [{"name": "log", "mountPath": "/log"}]}]}}`},
			container: "logs",
		},
		"another policy names each container": {policies: []string{sidecar, `overrides := {"spec": {"containers": [entry |
			some container in input.object.spec.containers
			entry := {"name": container.name, "imagePullPolicy": "Always"}]}}`}, container: "logs"},
		"another policy has a default for each container": {policies: []string{sidecar, `defaults := {"spec": {"containers": [entry |
			some container in input.object.spec.containers
			entry := {"name": container.name, "workingDir": "/work"}]}}`}, container: "logs"},
		"another policy applies to all containers": {policies: []string{
			sidecar, `overrides := {"spec": {"containers": {"*": {"imagePullPolicy": "Always"}}}}`,
		}, container: "logs"},
		"a policy adds to what another one added": {policies: []string{sidecar, `append contains {"path": ["spec", "tolerations"], "value": {"key": "logs", "operator": "Exists"}} if {
			some container in input.object.spec.containers
			container.name == "logs"
		}`}, container: "logs"},
		"another policy removes a default of the added container": {policies: []string{
			`defaults := {"spec": {"containers": [{"name": "logs", "image": "x", "env": [{"name": "DEBUG", "value": "1"}]}]}}`,
			`remove contains ["spec", "containers", "*", "env", {"name": "DEBUG"}]`,
		}, container: "logs"},
		"another policy removes a variable of the added container": {policies: []string{
			`overrides := {"spec": {"containers": [{"name": "logs", "image": "x", "env": [{"name": "DEBUG", "value": "1"}]}]}}`,
			`remove contains ["spec", "containers", {"name": container.name}, "env", {"name": "DEBUG"}] if {
				some container in input.object.spec.containers
				some variable in container.env
				variable.name == "DEBUG"
			}`,
		}, denial: []string{"policies conflict: spec.containers[logs].env[DEBUG]", "policy team-0 sets", "policy team-1 removes it"}},
		"a variable that core.devices removes": {
			policies: []string{`overrides := {"spec": {"containers": {"*": {"env": [{"name": "CUDA_MPS_PIPE_DIRECTORY", "value": "/tmp"}]}}}}`},
			denial:   []string{"policies conflict: spec.containers[main].env[CUDA_MPS_PIPE_DIRECTORY]", "policy core.devices removes it", "policy team-0 sets"},
		},
		"a privileged container": {
			policies: []string{strings.Replace(sidecar, `"name"`, `"securityContext": {"privileged": true}, "name"`, 1)},
			denial:   []string{"container logs is privileged", "set by policy team-0, not by the author: contact the cluster administrators"},
		},
		"a volume of the node": {
			policies: []string{`overrides := {"spec": {"volumes": [{"name": "dev", "hostPath": {"path": "/dev"}}]}}`},
			denial:   []string{"volume dev mounts /dev", "set by policy team-0, not by the author"},
		},
		"another policy appends to a list that a policy sets": {policies: []string{
			sidecar, `overrides := {"spec": {"tolerations": [{"key": "team", "operator": "Exists"}]}}`,
			`append contains {"path": ["spec", "tolerations"], "value": {"key": "lab", "operator": "Exists"}}`,
		}, container: "logs"},
		"a container for each container": {
			policies: []string{`overrides := {"spec": {"containers": [entry |
			some container in input.object.spec.containers
			entry := {"name": concat("-", [container.name, "x"]), "image": "x"}]}}`},
			denial: []string{"requests further changes", "(policy team-0)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var sources []engine.Source
			for i, rego := range tc.policies {
				name := "team-" + string(rune('0'+i))
				sources = append(sources, engine.Source{Name: name, Rego: "package " + strings.Replace(name, "-", "_", 1) + "\n" + rego})
			}
			setPolicies(t, base, sources...)
			raw := trainingReview(t, 1, 1)
			mutate := &pod.Mutator{Base: base}
			response := mutate.Handle(t.Context(), requestOf(t, raw))
			if len(tc.denial) > 0 {
				if response.Allowed {
					t.Fatal("it was admitted")
				}
				for _, part := range tc.denial {
					if !strings.Contains(response.Result.Message, part) {
						t.Errorf("denied with %q, want %q in it", response.Result.Message, part)
					}
				}
				return
			}
			if !response.Allowed {
				t.Fatal(response.Result.Message)
			}
			_, served := serveTimed(t, &admission.Webhook{Handler: mutate}, raw)
			patched := patchedReview(t, raw, served)
			checkComposed(t, base, patched, tc.container)
		})
	}
}

func requestOf(t *testing.T, raw []byte) admission.Request {
	t.Helper()
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(raw, &review); err != nil {
		t.Fatal(err)
	}
	return admission.Request{AdmissionRequest: *review.Request}
}

// checkComposed checks that both webhooks accept the mutated pod without a change, and that the container sees no GPU.
func checkComposed(t *testing.T, base evaluation.Base, patched []byte, container string) {
	t.Helper()
	request := requestOf(t, patched)
	if response := (&pod.Validator{Base: base}).Handle(t.Context(), request); !response.Allowed {
		t.Error(response.Result.Message)
	}
	if response := (&pod.Mutator{Base: base}).Handle(t.Context(), request); !response.Allowed || len(response.Patch) > 0 {
		t.Errorf("mutated again: %v, patch %s", response.Result, response.Patch)
	}
	var composed corev1.Pod
	if err := json.Unmarshal(request.Object.Raw, &composed); err != nil {
		t.Fatal(err)
	}
	for _, c := range append(composed.Spec.InitContainers, composed.Spec.Containers...) {
		for _, variable := range c.Env {
			if c.Name == container && variable.Name == "NVIDIA_VISIBLE_DEVICES" && variable.Value == "void" {
				return
			}
		}
	}
	t.Errorf("container %s can see every GPU", container)
}
