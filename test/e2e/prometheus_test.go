// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"sluice.dev/test/clustertest"
)

// prometheus is a real Prometheus that scrapes a cluster.
type prometheus struct {
	address string
	// since is when it was ready.
	since time.Time
}

// scrapeInterval is short, so that the test sees changes soon.
const scrapeInterval = 2 * time.Second

// startPrometheus starts a Prometheus that scrapes the API server and Sluice's components under the jobs that the
// ServiceMonitors would give them, and evaluates the rules.
func (s *sluiceCluster) startPrometheus(t *testing.T, rules any) *prometheus {
	t.Helper()
	programs, err := clustertest.Programs(t.Context(), "prometheus")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, content any) string {
		path := filepath.Join(dir, name)
		raw, ok := content.([]byte)
		if !ok {
			if raw, err = yaml.Marshal(content); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	server, err := url.Parse(s.config.Host)
	if err != nil {
		t.Fatal(err)
	}
	apiServer := map[string]any{
		"job_name": "apiserver", "scheme": "https", "static_configs": []any{map[string]any{"targets": []string{server.Host}}},
		"tls_config": map[string]any{
			"ca_file": write("ca.crt", s.config.CAData), "cert_file": write("tls.crt", s.config.CertData), "key_file": write("tls.key", s.config.KeyData),
		},
	}
	jobs := []any{apiServer}
	for job, component := range map[string]string{"sluice-webhook": "webhook", "sluice-lifecycle": "lifecycle"} {
		jobs = append(jobs, s.scrapeJob(t, job, nil, component))
	}
	for _, node := range []string{"dgx-1", "dgx-2"} {
		jobs = append(jobs, s.scrapeJob(t, "sluice-gpuagent", map[string]string{"node": node}, "gpuagent-"+node))
	}
	// Prometheus requires a unique name for each job.
	for i, job := range jobs {
		job := job.(map[string]any)
		name := job["job_name"].(string)
		job["relabel_configs"] = []any{map[string]any{"target_label": "job", "replacement": name}}
		job["job_name"] = fmt.Sprintf("%s-%d", name, i)
	}
	configuration := write("prometheus.yaml", map[string]any{
		"global":     map[string]any{"scrape_interval": scrapeInterval.String(), "evaluation_interval": scrapeInterval.String(), "scrape_timeout": scrapeInterval.String()},
		"rule_files": []string{write("rules.yaml", rules)}, "scrape_configs": jobs,
	})
	ports, err := clustertest.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	p := &prometheus{address: net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0]))}
	ready := clustertest.HTTPReady("http://" + p.address + "/-/ready")
	process, err := clustertest.StartProcess(t.Context(), filepath.Join(dir, "prometheus.log"), ready,
		programs["prometheus"], "--config.file", configuration, "--storage.tsdb.path", filepath.Join(dir, "data"),
		"--web.listen-address", p.address, "--log.level", "warn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := process.Stop(); err != nil {
			t.Error(err)
		}
	})
	p.since = time.Now()
	return p
}

// scrapeJob returns the job of a component. Where its metrics need TLS and authorization, Prometheus sends the token of an
// account that may read them.
func (s *sluiceCluster) scrapeJob(t *testing.T, job string, labels map[string]string, component string) map[string]any {
	t.Helper()
	address := s.componentAddress(t, component, "metrics")
	target := map[string]any{"targets": []string{address}}
	if labels != nil {
		target["labels"] = labels
	}
	result := map[string]any{"job_name": job, "scheme": "http", "static_configs": []any{target}}
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the certificate is self-signed
	if connection, err := dialer.DialContext(t.Context(), "tcp", address); err == nil {
		connection.Close()
		result["scheme"], result["tls_config"] = "https", map[string]any{"insecure_skip_verify": true}
		token, err := s.newMetricsToken(t, metricsReader, "sluice-metrics-reader")
		if err != nil {
			t.Fatal(err)
		}
		result["authorization"] = map[string]any{"credentials": token}
	}
	return result
}

// series is a series of a result: an instant vector or a matrix.
type series struct {
	Metric map[string]string
	Value  [2]any   // of a vector
	Values [][2]any // of a matrix
}

// numbers returns the values of a series that are numbers.
func (s *series) numbers() (list []float64) {
	values := s.Values
	if len(values) == 0 {
		values = append(values, s.Value)
	}
	for _, pair := range values {
		text, _ := pair[1].(string)
		if n, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(n) {
			list = append(list, n)
		}
	}
	return list
}

// get calls Prometheus' API.
func (p *prometheus) get(ctx context.Context, path string, parameters url.Values, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+path+"?"+parameters.Encode(), http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var result struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(response.Body).Decode(&result); err != nil {
		return fmt.Errorf("%s: %s: %w", path, response.Status, err)
	}
	if result.Status != "success" {
		return fmt.Errorf("%s: %s", path, result.Error)
	}
	return json.Unmarshal(result.Data, into)
}

// query evaluates an expression now.
func (p *prometheus) query(ctx context.Context, expr string) ([]series, error) {
	return p.queryAPI(ctx, "/api/v1/query", url.Values{"query": {expr}})
}

// queryRange evaluates an expression over the time since Prometheus started.
func (p *prometheus) queryRange(ctx context.Context, expr string) ([]series, error) {
	return p.queryAPI(ctx, "/api/v1/query_range", url.Values{
		"query": {expr}, "step": {scrapeInterval.String()},
		"start": {p.since.Format(time.RFC3339Nano)}, "end": {time.Now().Format(time.RFC3339Nano)},
	})
}

func (p *prometheus) queryAPI(ctx context.Context, path string, parameters url.Values) ([]series, error) {
	var data struct {
		ResultType string
		Result     []series
	}
	if err := p.get(ctx, path, parameters, &data); err != nil {
		return nil, fmt.Errorf("%s: %w", parameters.Get("query"), err)
	}
	return data.Result, nil
}

// firing returns the alerts that fire now, with their labels, by name.
func (p *prometheus) firing(ctx context.Context) (map[string][]map[string]string, error) {
	var data struct {
		Alerts []struct {
			State               string
			Labels, Annotations map[string]string
		}
	}
	if err := p.get(ctx, "/api/v1/alerts", nil, &data); err != nil {
		return nil, err
	}
	firing := map[string][]map[string]string{}
	for _, a := range data.Alerts {
		if a.State != "firing" {
			continue
		}
		for _, text := range a.Annotations {
			if strings.Contains(text, "error expanding") || strings.Contains(text, "<no value>") {
				return nil, fmt.Errorf("the annotation of %s is %q", a.Labels["alertname"], text)
			}
		}
		firing[a.Labels["alertname"]] = append(firing[a.Labels["alertname"]], a.Labels)
	}
	return firing, nil
}
