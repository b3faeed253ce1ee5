{{- /* Key of an object or of a patch: kind, namespace, name. */ -}}
{{- define "spazio.key" -}}
{{ .kind }}/{{ .metadata.namespace }}/{{ .metadata.name }}
{{- end -}}

{{- /* "yes" if an object belongs to a component that is not enabled. */ -}}
{{- define "spazio.skipped" -}}
{{- $name := .object.metadata.name -}}
{{- range $component, $values := .components -}}
{{- if not $values.enabled -}}
{{- $own := printf "spazio-%s" $component -}}
{{- if or (eq $name $own) (hasPrefix (printf "%s-" $own) $name) (and (eq $component "kubernetes") (eq $.object.kind "CustomResourceDefinition")) -}}
yes
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Puts the networks of the control plane where the manifests have their placeholder, and those of a NATS server outside beside
   the one of the manifests; changes the policy. */ -}}
{{- define "spazio.network" -}}
{{- $blocks := list -}}
{{- range .cidrs -}}
{{- $blocks = append $blocks (dict "ipBlock" (dict "cidr" .)) -}}
{{- end -}}
{{- range list "ingress" "egress" -}}
{{- $side := ternary "from" "to" (eq . "ingress") -}}
{{- range (get $.object.spec . | default list) -}}
{{- if eq (get . $side | toJson) `[{"ipBlock":{"cidr":"192.0.2.1/32"}}]` -}}
{{- $_ := set . $side $blocks -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if .outside.cidrs -}}
{{- range (get $.object.spec "egress" | default list) -}}
{{- if eq (.ports | toJson) `[{"port":4222}]` -}}
{{- $servers := .to -}}
{{- range $.outside.cidrs -}}
{{- $servers = append $servers (dict "ipBlock" (dict "cidr" .)) -}}
{{- end -}}
{{- $_ := set . "to" $servers -}}
{{- $_ := set . "ports" (list (dict "port" $.outside.port)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Puts the values of a component into its Deployment, StatefulSet or DaemonSet; changes the object. Pods read their ConfigMap at their
   start, so the settings of all that are given are in an annotation, with which they start again. */ -}}
{{- define "spazio.workload" -}}
{{- $values := .values -}}
{{- $pod := .object.spec.template.spec -}}
{{- $container := first $pod.containers -}}
{{- $image := get .images (ternary "agent" (ternary "nats" "full" (eq .component "nats")) (eq .component "agent")) -}}
{{- if $image -}}
{{- range concat $pod.containers ($pod.initContainers | default list) -}}{{- $_ := set . "image" $image -}}{{- end -}}
{{- end -}}
{{- with $values.replicas -}}{{- $_ := set $.object.spec "replicas" . -}}{{- end -}}
{{- if and .shared (ne .component "nats") -}}
{{- $metadata := .object.spec.template.metadata -}}
{{- $checksum := dict "spazio.settings" (.shared | toJson | sha256sum) -}}
{{- $_ := set $metadata "annotations" (merge $checksum ($metadata.annotations | default dict)) -}}
{{- end -}}
{{- with $values.resources -}}{{- $_ := set $container "resources" (mergeOverwrite $container.resources .) -}}{{- end -}}
{{- with $values.nodeSelector -}}{{- $_ := set $pod "nodeSelector" (mergeOverwrite $pod.nodeSelector .) -}}{{- end -}}
{{- with $values.tolerations -}}{{- $_ := set $pod "tolerations" (concat ($pod.tolerations | default list) .) -}}{{- end -}}
{{- $names := list -}}
{{- range .images.pullSecrets -}}{{- $names = append $names (dict "name" .) -}}{{- end -}}
{{- if $names -}}{{- $_ := set $pod "imagePullSecrets" $names -}}{{- end -}}
{{- $settings := deepCopy ($values.settings | default dict) -}}
{{- if $values.bind -}}{{- $_ := set $settings "SPAZIO_EXTENDER_BIND" "true" -}}{{- end -}}
{{- if $values.evict -}}{{- $_ := set $settings "SPAZIO_GOVERN_EVICT" "true" -}}{{- end -}}
{{- if $values.full -}}{{- $_ := set $settings "SPAZIO_OUTPUT_FULL" "true" -}}{{- end -}}
{{- $env := $container.env | default list -}}
{{- range $name, $value := $settings -}}{{- $env = append $env (dict "name" $name "value" $value) -}}{{- end -}}
{{- if $env -}}{{- $_ := set $container "env" $env -}}{{- end -}}
{{- with $values.storage -}}
{{- range $.object.spec.volumeClaimTemplates -}}
{{- include "spazio.claim" (dict "object" . "storage" $values.storage) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Bytes of a volume of a size that may be used: 80 %. */ -}}
{{- define "spazio.used" -}}
{{- $units := dict "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- div (mul (regexFind "^[0-9]+" .) (get $units (regexFind "[A-Z]i$" .)) 8) 10 -}}
{{- end -}}

{{- /* Puts size and class into a claim; changes the object. */ -}}
{{- define "spazio.claim" -}}
{{- with .storage.size -}}{{- $_ := set $.object.spec.resources.requests "storage" . -}}{{- end -}}
{{- with .storage.className -}}{{- $_ := set $.object.spec "storageClassName" . -}}{{- end -}}
{{- end -}}
