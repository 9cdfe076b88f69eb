// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package kwok

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
)

//go:embed stages/*.yaml
var stageFiles embed.FS

// options is the part of kwok's configuration that has no flag. kwok has defaults
// only where the whole document is missing: each worker must be counted here.
const options = `apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
metadata:
  name: kwok
options:
  podPlayStageParallelism: %d
  nodePlayStageParallelism: 4
  nodeLeaseParallelism: 4
  podsOnNodeSyncParallelism: 1
  enablePodsOnNodeSyncListPager: true
  enableDebuggingHandlers: false
`

// Config returns kwok's configuration: its options and the stages, as YAML
// documents. It is the same at every call.
func Config() ([]byte, error) {
	var out bytes.Buffer
	fmt.Fprintf(&out, options, podWorkers)
	paths, err := fs.Glob(stageFiles, "stages/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("kwok: list the stages: %w", err)
	}
	for _, path := range paths {
		stage, err := stageFiles.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("kwok: read stage %s: %w", path, err)
		}
		out.WriteString("---\n")
		out.Write(stage)
	}
	return out.Bytes(), nil
}
