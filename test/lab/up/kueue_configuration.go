// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"bytes"
	"fmt"
	"strings"
	"text/template"

	"sluice.dev/api/v1alpha1"
)

// Names in Kueue's manifests.
const (
	kueueNamespace = "kueue-system"
	kueueAccount   = "kueue-controller-manager"
	// kueueConfigurationKey is the key of Kueue's configuration in its ConfigMap.
	kueueConfigurationKey = "controller_manager_config.yaml"
)

// kueueUser is Kueue's user name in Kubernetes.
const kueueUser = "system:serviceaccount:" + kueueNamespace + ":" + kueueAccount

// kueueSettings are Kueue's addresses and the folder of its certificates.
type kueueSettings struct {
	// Health and Metrics are addresses on loopback, host:port.
	Health, Metrics string
	// WebhookPort is the port of its webhooks on 127.0.0.1.
	WebhookPort int
	// Certificates has tls.crt and tls.key.
	Certificates string
}

// kueueFrameworks are the kinds that Kueue queues. It waits for kinds that the
// cluster does not have.
var kueueFrameworks = []string{
	"batch/job", "pod", "deployment", "statefulset",
	"jobset.x-k8s.io/jobset", "leaderworkerset.x-k8s.io/leaderworkerset",
	"ray.io/rayjob", "ray.io/raycluster", "workload.codeflare.dev/appwrapper",
	"trainer.kubeflow.org/trainjob", "kubeflow.org/mpijob", "kubeflow.org/pytorchjob",
	"kubeflow.org/tfjob", "kubeflow.org/jaxjob", "kubeflow.org/paddlejob", "kubeflow.org/xgboostjob",
}

// projectLabel selects the namespaces whose workloads Kueue manages.
const projectLabel = v1alpha1.LabelProject

var kueueConfigurationTemplate = template.Must(template.New("configuration").Parse(`apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
namespace: {{.Namespace}}
health:
  healthProbeBindAddress: {{.Health}}
metrics:
  bindAddress: {{.Metrics}}
  enableClusterQueueResources: true
webhook:
  host: 127.0.0.1
  port: {{.WebhookPort}}
  certDir: {{.Quoted}}
# The lock of the cluster's folder admits one process.
leaderElection:
  leaderElect: false
# Without it Kueue reads metrics certificates from a folder below /etc. It keeps the
# certificates of its webhooks, which the Secret has.
internalCertManagement:
  enable: true
  webhookServiceName: kueue-webhook-service
  webhookSecretName: kueue-webhook-server-cert
clientConnection:
  qps: 200
  burst: 400
# Idle quota is shared by weight, and not first come, first served.
fairSharing:
  preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]
# Kueue only counts {{.QuotaUnit}}. Other schedulers serve the pools of
# {{.QuotaUnit}}.<pool>, and the project's ResourceQuota counts {{.GuaranteedUnit}}.
resources:
  excludeResourcePrefixes: [cpu, memory, ephemeral-storage, hugepages-, nvidia.com/, {{.QuotaUnit}}., {{.GuaranteedUnit}}]
# In each project the queue named default gets the workloads without a queue.
manageJobsWithoutQueueName: false
managedJobsNamespaceSelector:
  matchExpressions:
    - {key: {{.ProjectLabel}}, operator: Exists}
integrations:
  frameworks:
{{- range .Frameworks}}
    - {{.}}
{{- end}}
featureGates:
  # They need a Service that the API server reaches, and other clusters.
  VisibilityOnDemand: false
  MultiKueue: false
`))

// kueueConfiguration returns Kueue's configuration file.
func kueueConfiguration(s kueueSettings) ([]byte, error) {
	var out bytes.Buffer
	err := kueueConfigurationTemplate.Execute(&out, struct {
		kueueSettings
		Namespace, QuotaUnit, GuaranteedUnit, ProjectLabel, Quoted string
		Frameworks                                                 []string
	}{s, kueueNamespace, string(v1alpha1.ResourceGPUMilli), string(v1alpha1.ResourceGuaranteedMilli), projectLabel, yamlQuote(s.Certificates), kueueFrameworks})
	if err != nil {
		return nil, fmt.Errorf("render Kueue's configuration: %w", err)
	}
	return out.Bytes(), nil
}

// yamlQuote quotes a path as a YAML string.
func yamlQuote(path string) string { return "'" + strings.ReplaceAll(path, "'", "''") + "'" }
