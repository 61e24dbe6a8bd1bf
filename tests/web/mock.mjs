// SPDX-License-Identifier: Apache-2.0
/*
 * A stand-in in front of a monitor: the page and what is not said here come from the monitor, the state and answers that a
 * test wants come from the test. For machines that no sample file can describe: allocators, engines, findings, fleets.
 */
import http from 'node:http';

/** @param {string} behind address of the monitor @param {Object<string, () => any>} answers by path */
export async function mock(behind, answers) {
  const streams = new Set();
  const status = () => JSON.stringify(answers['/api/v1/status']());
  const send = (stream) => stream.write('id: ' + Date.now() + '\nevent: status\ndata: ' + status() + '\n\n');
  const timer = setInterval(() => { for (const s of streams) { send(s); } }, 200);
  const server = http.createServer((request, response) => {
    const path = request.url.split('?')[0];
    if (path === '/api/v1/live') {
      response.writeHead(200, { 'Content-Type': 'text/event-stream' });
      streams.add(response);
      request.on('close', () => streams.delete(response));
      send(response);
    } else if (answers[path]) {
      response.writeHead(200, { 'Content-Type': 'application/json' });
      response.end(JSON.stringify(answers[path]()));
    } else {
      http.get(new URL(request.url, behind), (answer) => {
        response.writeHead(answer.statusCode, answer.headers);
        answer.pipe(response);
      });
    }
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', () => done()));
  const { port } = /** @type {any} */ (server.address());
  return { url: 'http://127.0.0.1:' + port + '/', stop: () => { clearInterval(timer); server.closeAllConnections(); server.close(); } };
}

const GIB = 2 ** 30;
/** A state with one of everything; `name` is used wherever a stranger's text may stand. */
export function richState(name = 'vllm') {
  const now = Date.now() * 1e6;
  const parts = (live, stranded, releasable, outside, others) => ({ live_bytes: live * GIB, stranded_bytes: stranded * GIB, releasable_bytes: releasable * GIB,
    outside_bytes: outside * GIB, others_bytes: others * GIB, unknown_bytes: GIB / 2, reserved_bytes: GIB / 2, free_bytes: (79 - live - stranded - releasable - outside - others) * GIB });
  const device = (i, ledger, more) => ({ device: i, vendor: 'nvidia', name: 'NVIDIA H100 80GB HBM3', uuid: 'GPU-' + i + 'f2a', pci: '0000:4' + i + ':00.0', state: 'ok',
    total_bytes: 80 * GIB, used_bytes: 79.5 * GIB - ledger.free_bytes, free_bytes: ledger.free_bytes, reserved_bytes: GIB / 2, busy_percent: 90 - i, temperature_celsius: 60 + i,
    power_milliwatts: 500000, sm_clock_mhz: 1980, ledger, ...more });
  const estimate = (value) => ({ value, low: value * 0.8, high: value * 1.3 });
  const use = (d, pid, bytes, text, more) => ({ device: d, pid, bytes: bytes * GIB, counted_bytes: bytes * GIB, kinds: ['compute'], start_ticks: pid, resident_bytes: 3 * GIB, name: text, ...more });
  const allocator = (d, pid, allocated, reserved, split) => ({ device: d, pid, start_ticks: pid, ordinal: 0, told_ns: now, allocated_bytes: allocated * GIB, reserved_bytes: reserved * GIB, inactive_split_bytes: split * GIB });
  return {
    schema: 'plimsoll.status/1', time_ns: now, host: 'gpu-7', host_total_bytes: 512 * GIB, host_available_bytes: 310 * GIB,
    devices: [device(0, parts(52, 9, 3, 2, 4), { seconds_left: estimate(8200) }), device(1, parts(40, 1, 6, 2, 0)), device(2, parts(0, 0, 0, 0, 22), { xids: 2, last_xid: 63 }),
      { device: 3, vendor: 'nvidia', name: 'NVIDIA H100 80GB HBM3', uuid: 'GPU-3f2a', state: 'lost' }],
    uses: [use(0, 4711, 66, name, { unit: name + '.service', container: 'c0ffee'.repeat(10), pod: '0a1b2c3d-0000' }), use(0, 4800, 4, 'notebook'), use(1, 4712, 49, name), use(2, 5000, 22, 'comfyui')],
    allocators: [allocator(0, 4711, 52, 64, 9), allocator(1, 4712, 40, 47, 1)], owners: [],
    engines: [{ name: name + ':8000', kind: 'vllm', model: 'meta-llama/Llama-3.1-70B', up: true, told_ns: now, requests_running: 37, requests_waiting: 4, kv_usage_ratio: 0.83, kv_evictable_ratio: 0.2,
      kv_capacity_tokens: 482000, preemptions: 12, requests_finished: 90412, components: { weights: 34 * GIB, kv_cache: 26 * GIB, graphs: 2 * GIB, activations: 3 * GIB } },
    { name: '10.0.0.9:30000', kind: 'sglang', up: false, told_ns: now, components: {} }],
    happenings: [{ kind: 'process_started', time_ns: now, device: 0, pid: 4711, text: name }],
    findings: [
      { id: 1, class: 'leak', severity: 'warning', active: true, device: 0, pid: 4711, process: name, since_ns: now - 5400e9, confidence: 0.93, bytes: 9 * GIB, bytes_per_second: estimate(1.9e6), seconds_left: estimate(8200),
        summary: name + ' grows by 6.4 GiB an hour at even traffic; the device is full in 2 h 17 min', evidence: 'live bytes: 43.1 GiB at 22:10, 52.0 GiB at 23:40\ntraffic: 37 requests at both times\nno plateau for 90 min',
        next_step: 'Record an hour with plimsoll record and diagnose it: the report names the stacks that grow.' },
      { id: 2, class: 'device_trouble', severity: 'critical', active: true, device: 3, since_ns: now - 60e9, confidence: 1, bytes: 0, summary: 'GPU 3 has fallen off the bus', evidence: 'NVML: GPU is lost', next_step: 'Drain the host and reset the device.' },
    ],
    monitor: { version: '0.1.0', watched: true, started_ns: now - 86400e9, samples: 86400 },
  };
}
