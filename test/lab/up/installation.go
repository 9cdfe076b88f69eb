// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
	agentconfig "sluice.dev/gpuagent/agent"
	lifecycleconfig "sluice.dev/lifecycle/config"
	"sluice.dev/manifests"
	webhookconfig "sluice.dev/webhook"
)

//go:embed overlay.yaml
var overlay []byte

// installation returns the shipped objects of Sluice for the embedded cluster.
func (s componentContext) installation() ([]*unstructured.Unstructured, error) {
	objects, err := manifests.BuildOverlay(overlay)
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		if object.GetKind() != "ConfigMap" {
			continue
		}
		switch object.GetName() {
		case webhookProgram:
			err = amendConfiguration(object, s.amendWebhook)
		case lifecycleProgram:
			err = amendConfiguration(object, s.amendLifecycle)
		case agentProgram:
			err = amendConfiguration(object, s.amendAgent)
		}
		if err != nil {
			return nil, err
		}
	}
	return objects, s.replicas.Set(objects)
}

// amendWebhook sets what differs from the shipped configuration of the webhook.
func (s componentContext) amendWebhook(c *webhookconfig.Config) {
	c.ClockFile = s.clockFile
	// localhost is for programs on this machine that call a replica directly.
	c.Certificates.DNSNames = []string{webhookProgram + "." + v1alpha1.SystemNamespace + ".svc", "localhost"}
	if s.replicas.Webhook <= 1 {
		// The API server calls the only replica until it ends.
		c.DrainPeriod = &metav1.Duration{}
	}
}

// amendLifecycle sets what differs from the shipped configuration of lifecycle.
func (s componentContext) amendLifecycle(c *lifecycleconfig.Config) {
	c.ClockFile = s.clockFile
	// With one replica a Lease would only delay the start after a crash.
	c.LeaderElection = lifecycleconfig.LeaderElection{Disabled: s.replicas.Lifecycle <= 1}
	c.GPUPodsOutside = lifecycleconfig.Deny
	c.Mail = s.mailConfig()
	if s.scheduler == schedulerKueue {
		c.Identities.Queues = []string{kueueUser}
	}
}

// amendAgent sets what differs from the shipped configuration of the agents.
func (s componentContext) amendAgent(c *agentconfig.Config) {
	c.ClockFile = s.clockFile
	c.DevicePlugin = agentconfig.Daemon{Command: strings.Join(append([]string{s.self}, simulateKubeletArgs...), " ")}
	// After a step of policy time the use is known within seconds.
	c.Intervals = agentconfig.Intervals{Report: metav1.Duration{Duration: 3 * time.Second}}
}

// defaulted is a configuration with defaults.
type defaulted[C any] interface {
	*C
	Default()
}

// amendConfiguration changes the configuration file in a ConfigMap. The result names all
// defaults, so that the launcher sees every path and address.
func amendConfiguration[C any, P defaulted[C]](object *unstructured.Unstructured, amend func(*C)) error {
	var configMap corev1.ConfigMap
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &configMap); err != nil {
		return fmt.Errorf("ConfigMap %s: %w", object.GetName(), err)
	}
	key := configMap.Name + ".yaml"
	var config C
	if err := yaml.UnmarshalStrict([]byte(configMap.Data[key]), &config); err != nil {
		return fmt.Errorf("ConfigMap %s: %s: %w", object.GetName(), key, err)
	}
	amend(&config)
	P(&config).Default()
	raw, err := yaml.Marshal(config)
	if err != nil {
		return fmt.Errorf("ConfigMap %s: %s: %w", object.GetName(), key, err)
	}
	return unstructured.SetNestedField(object.Object, string(raw), "data", key)
}

// nodeFolder returns the folder that replaces a path on a simulated node. The fake kubelet
// keeps its files in a flat folder, since the paths of sockets have to be short.
func nodeFolder(clusterDir, node, path string) string {
	switch path {
	case "/var/lib/kubelet/pod-resources":
		path = "pod-resources"
	case "/var/lib/sluice/gpuagent":
		path = agentProgram
	}
	return filepath.Join(clusterDir, "nodes", node, path)
}

// createNodeFolders creates the folders that every machine has and the fake kubelet does not
// need.
func createNodeFolders(s componentContext) error {
	for _, node := range s.nodes {
		if err := os.MkdirAll(nodeFolder(s.cluster.Dir(), node.Name, "/dev"), 0o700); err != nil {
			return fmt.Errorf("create folder of node %s: %w", node.Name, err)
		}
	}
	return nil
}
