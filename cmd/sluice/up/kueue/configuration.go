// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package kueue

import (
	"bytes"
	"fmt"
	"strings"
	"text/template"

	"sluice.dev/api/v1alpha1"
)

// Namespace, Account and ConfigMap are the names that Kueue's manifests give.
const (
	Namespace = "kueue-system"
	Account   = "kueue-controller-manager"
	// ConfigMap holds the text that Kueue is started with, below the key
	// controller_manager_config.yaml.
	ConfigMap = "kueue-manager-config"

	configurationKey = "controller_manager_config.yaml"
)

// User is Kueue's name in Kubernetes.
const User = "system:serviceaccount:" + Namespace + ":" + Account

// Settings are where Kueue listens and finds its certificates.
type Settings struct {
	// Health and Metrics are addresses on loopback, host:port.
	Health, Metrics string
	// WebhookPort is the port of its webhooks on 127.0.0.1.
	WebhookPort int
	// Certificates is the folder of tls.crt and tls.key.
	Certificates string
}

// integrationFrameworks are what Kueue queues. For those whose kinds the cluster
// does not have, it waits until it has.
var integrationFrameworks = []string{
	"batch/job", "pod", "deployment", "statefulset",
	"jobset.x-k8s.io/jobset", "leaderworkerset.x-k8s.io/leaderworkerset",
	"ray.io/rayjob", "ray.io/raycluster", "workload.codeflare.dev/appwrapper",
	"trainer.kubeflow.org/trainjob", "kubeflow.org/mpijob", "kubeflow.org/pytorchjob",
	"kubeflow.org/tfjob", "kubeflow.org/jaxjob", "kubeflow.org/paddlejob", "kubeflow.org/xgboostjob",
}

// projectLabel is on the namespaces whose workloads Kueue sees.
const projectLabel = v1alpha1.LabelProject

var configurationTemplate = template.Must(template.New("configuration").Parse(`apiVersion: config.kueue.x-k8s.io/v1beta2
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
# The cluster's folder leaves room for one.
leaderElection:
  leaderElect: false
# Without it Kueue reads metrics certificates in a folder of the machine, below
# /etc. It finds those of its webhooks in the Secret and leaves them alone.
internalCertManagement:
  enable: true
  webhookServiceName: kueue-webhook-service
  webhookSecretName: kueue-webhook-server-cert
clientConnection:
  qps: 200
  burst: 400
# What nobody uses is divided by the weights; without it who comes first has it.
fairSharing:
  preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]
# GPUs are counted in {{.Currency}}, and nothing else is: nor are those of pools that
# others serve, in {{.Currency}}.<pool>.
resources:
  excludeResourcePrefixes: [cpu, memory, ephemeral-storage, hugepages-, nvidia.com/, {{.Currency}}.]
# In each project a queue named default takes what names none.
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
  # They need a Service that is reached from the API server, and further clusters.
  VisibilityOnDemand: false
  MultiKueue: false
`))

// Configuration is the text of Kueue's configuration file.
func Configuration(s Settings) ([]byte, error) {
	var out bytes.Buffer
	err := configurationTemplate.Execute(&out, struct {
		Settings
		Namespace, Currency, ProjectLabel, Quoted string
		Frameworks                                []string
	}{s, Namespace, string(v1alpha1.ResourceGPUMilli), projectLabel, yamlQuote(s.Certificates), integrationFrameworks})
	if err != nil {
		return nil, fmt.Errorf("kueue's configuration: %w", err)
	}
	return out.Bytes(), nil
}

// yamlQuote is a path as a YAML string, whatever characters it has.
func yamlQuote(path string) string { return "'" + strings.ReplaceAll(path, "'", "''") + "'" }
