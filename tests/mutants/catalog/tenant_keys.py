"""Keys of tenants: no object without its own, and none that is revoked is served, waited for or taken for something
else."""

from mutants.mutant import Mutant

KEYS = "shared/tistream/storage/tenant_keys.py"
S3 = "shared/tistream/storage/s3.py"
PARTS = "shared/tistream/storage/s3_parts.py"
MANIFESTS = "shared/tistream/storage/manifest_log.py"
NODE = "services/sorter/tistream_sorter/node.py"
CACHE = "services/api/tistream_api/group_cache.py"
RULES = "services/meta/tistream_meta/tenant_rules.py"

STORE_TESTS = "tests/unit/storage/test_tenant_keys.py"
NODE_TESTS = "tests/unit/sorter/test_keys_unusable.py"
CACHE_TESTS = "tests/unit/api/test_keyed_cache.py"
META_TESTS = "tests/unit/meta/test_meta_routes.py"

MUTANTS = (
    Mutant(
        name="tenant-key-left-out-of-large-objects",
        invariants=(20,),
        breaks="an object that goes in parts is not encrypted with its tenant's key",
        file=PARTS,
        old="**self.target, **self.sealed, **whole)",
        new="**self.target, **whole)",
        catchers=(f"{STORE_TESTS}::test_every_put_bears_the_tenants_key",),
    ),
    Mutant(
        name="tenant-key-left-out-of-commits",
        invariants=(20,),
        breaks="a manifest is not encrypted with its tenant's key",
        file=S3,
        old="self._once.put_object(**target, **sealed, Body",
        new="self._once.put_object(**target, Body",
        catchers=(f"{STORE_TESTS}::test_every_put_bears_the_tenants_key",),
    ),
    Mutant(
        name="tenant-key-unknown-taken-for-none",
        invariants=(20,),
        breaks="a process that has not heard of a tenant writes its objects without a key",
        file=KEYS,
        old="            if tenant in self._told:\n                return self._told[tenant]\n",
        new="            return self._told.get(tenant)\n",
        catchers=(f"{STORE_TESTS}::test_nothing_is_written_of_a_tenant_of_which_nothing_was_told",),
    ),
    Mutant(
        name="tenant-key-tried-with-every-tick",
        invariants=(21,),
        breaks="a task whose key cannot be used is ticked as often as the others, at their cost",
        file=NODE,
        old="            held.not_before_ms = now_ms + KEY_AGAIN_MS\n",
        new="            held.not_before_ms = now_ms\n",
        catchers=(f"{NODE_TESTS}::test_the_others_of_the_job_go_on_and_it_is_tried_seldom_until_the_key_is_back",),
    ),
    Mutant(
        name="tenant-key-revoked-and-rows-served",
        invariants=(20,),
        breaks="rows in memory are served for as long as there is room",
        file=CACHE,
        old="        return until_ms is not None and self.clock.monotonic_ms() >= until_ms\n",
        new="        return False\n",
        catchers=(f"{CACHE_TESTS}::test_a_revoked_tenants_rows_are_not_served_after_that_time",),
    ),
    Mutant(
        name="tenant-key-kept-for-nothing",
        invariants=(20,),
        breaks="a key is taken though the object store encrypts nothing",
        file=RULES,
        old="encryption.kms_key_id is not None and not self.options.encrypts",
        new="encryption.kms_key_id is None and not self.options.encrypts",
        catchers=(f"{META_TESTS}::test_a_store_that_cannot_encrypt_takes_no_keys",),
    ),
)
