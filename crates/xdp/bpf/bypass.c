/* Sends TCP frames of the configured destinations to the AF_XDP socket of their receive queue, and every other frame to the
 * kernel. No frame is changed, and none is dropped.
 *
 * A frame matches when it is TCP over IPv4 or IPv6 to an address and port of `destinations`, with at most one VLAN tag in the
 * frame, directly or inside one tunnel header of the kind that `decapsulate` names. Fragments and IPv6 packets with extension
 * headers pass to the kernel.
 *
 * The file includes nothing, so that the object depends on the compiler alone. `bypass.o` is checked in: `make xdp-object` builds
 * it, and `tests/object.rs` shows that it belongs to this text.
 */

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define BE16(x) ((u16)((((x) & 0xff) << 8) | (((x) >> 8) & 0xff)))

/* From linux/bpf.h, linux/if_ether.h and linux/in.h. */
#define MAP_TYPE_HASH 1
#define MAP_TYPE_PERCPU_ARRAY 6
#define MAP_TYPE_XSKMAP 17
#define XDP_PASS 2
#define XDP_REDIRECT 4
#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_IPV6 0x86dd
#define ETHERTYPE_VLAN 0x8100
#define ETHERTYPE_QINQ 0x88a8
#define PROTOCOL_IPIP 4
#define PROTOCOL_TCP 6
#define PROTOCOL_UDP 17
#define PROTOCOL_IPV6 41
/* "More fragments" and the offset of a fragment. */
#define FRAGMENT_MASK 0x3fff

static void *(*map_lookup)(void *map, const void *key) = (void *)1;
static long (*redirect_map)(void *map, u64 key, u64 flags) = (void *)51;

struct context {
    u32 data;
    u32 data_end;
    u32 data_meta;
    u32 ingress_ifindex;
    u32 rx_queue_index;
    u32 egress_ifindex;
};

struct map_definition {
    u32 type;
    u32 key_size;
    u32 value_size;
    u32 max_entries;
    u32 map_flags;
};

/* An address (IPv4 as ::ffff:a.b.c.d) and a port, both in network order. */
struct destination {
    u32 address[4];
    u16 port;
    u16 zero;
};

/* Numbers that `src/program.rs` knows. */
enum outcome { REDIRECTED, NO_SOCKET, OTHER_TCP, FRAGMENT, OTHER, OUTCOMES };
enum tunnel { NONE, IPIP, GUE };

struct map_definition SECTION("maps") destinations = {MAP_TYPE_HASH, sizeof(struct destination), 4, 4096, 0};
struct map_definition SECTION("maps") sockets = {MAP_TYPE_XSKMAP, 4, 4, 1024, 0};
struct map_definition SECTION("maps") outcomes = {MAP_TYPE_PERCPU_ARRAY, 4, 8, OUTCOMES, 0};

/* Set by the loader. */
const volatile u32 decapsulate SECTION(".rodata") = NONE;
const volatile u32 gue_port SECTION(".rodata") = 6080;

/* SHA-256 of this text, which says that the object was built from it. */
const char hash[] SECTION("source_hash") = SOURCE_HASH;

/* How far the headers have been read. */
struct cursor {
    u8 *at;
    u8 *end;
};

#define TAKE(cursor, pointer)                                   \
    ({                                                          \
        (pointer) = (void *)(cursor)->at;                       \
        (cursor)->at += sizeof(*(pointer));                     \
        (cursor)->at <= (cursor)->end;                          \
    })

/* Skips words of 4 bytes, by constants: without CAP_PERFMON, the kernel loads no program that adds variables to a pointer into a
 * frame. The asm statement keeps the compiler from making one addition of them. */
#define SKIP(cursor, words, bit)                                \
    do {                                                        \
        if ((words) & (bit)) {                                  \
            (cursor)->at += (bit) * 4;                          \
            asm volatile("" : "+r"((cursor)->at));              \
        }                                                       \
    } while (0)

struct ethernet {
    u8 destination[6];
    u8 source[6];
    u16 type;
};

struct vlan {
    u16 tag;
    u16 type;
};

struct ipv4 {
    u8 version_len;
    u8 tos;
    u16 len;
    u16 id;
    u16 fragment;
    u8 ttl;
    u8 protocol;
    u16 checksum;
    u32 source;
    u32 destination;
};

struct ipv6 {
    u32 version_class_label;
    u16 len;
    u8 protocol;
    u8 hop_limit;
    u32 source[4];
    u32 destination[4];
};

struct ports {
    u16 source;
    u16 destination;
};

struct udp {
    u16 source;
    u16 destination;
    u16 len;
    u16 checksum;
};

struct gue {
    u8 version_control_len;
    u8 protocol;
    u16 flags;
};

INLINE int count(u32 outcome)
{
    u64 *counter = map_lookup(&outcomes, &outcome);

    if (counter)
        *counter += 1;
    return XDP_PASS;
}

/* Reads an IP header. Returns the protocol after it, or the negative outcome. */
INLINE int take_ip(struct cursor *cursor, int is_ipv6, struct destination *to)
{
    if (is_ipv6) {
        struct ipv6 *ip;

        if (!TAKE(cursor, ip))
            return -OTHER;
        to->address[0] = ip->destination[0];
        to->address[1] = ip->destination[1];
        to->address[2] = ip->destination[2];
        to->address[3] = ip->destination[3];
        /* 44 is the fragment header. */
        return ip->protocol == 44 ? -FRAGMENT : ip->protocol;
    }

    struct ipv4 *ip;

    if (!TAKE(cursor, ip))
        return -OTHER;
    u32 words = ip->version_len & 15;

    if (ip->version_len >> 4 != 4 || words < sizeof(*ip) / 4)
        return -OTHER;
    if (ip->fragment & BE16(FRAGMENT_MASK))
        return -FRAGMENT;
    to->address[0] = 0;
    to->address[1] = 0;
    to->address[2] = BE16(0xffff) << 16;
    to->address[3] = ip->destination;
    words -= sizeof(*ip) / 4;
    SKIP(cursor, words, 1);
    SKIP(cursor, words, 2);
    SKIP(cursor, words, 4);
    SKIP(cursor, words, 8);
    return ip->protocol;
}

/* Reads UDP and GUE headers. Returns the protocol of the packet inside (IPIP or IPV6), or -1 for none. */
INLINE int take_gue(struct cursor *cursor)
{
    struct udp *udp;
    struct gue *gue;

    if (!TAKE(cursor, udp) || udp->destination != BE16(gue_port))
        return -1;
    u8 *start = cursor->at;

    if (!TAKE(cursor, gue))
        return -1;
    switch (gue->version_control_len >> 6) {
    case 0:
        /* A control message, with the bit below the version, is for the kernel, and so is a header with more than 15 words of
         * fields, of which 12 are defined: fewer lengths make the kernel's check of the program shorter. */
        if (gue->version_control_len & 0x30)
            return -1;
        SKIP(cursor, gue->version_control_len, 1);
        SKIP(cursor, gue->version_control_len, 2);
        SKIP(cursor, gue->version_control_len, 4);
        SKIP(cursor, gue->version_control_len, 8);
        return gue->protocol;
    case 1:
        /* The IP header comes at once: the version of GUE is the first two bits of 4 and of 6. */
        cursor->at = start;
        return gue->version_control_len >> 4 == 6 ? PROTOCOL_IPV6 : PROTOCOL_IPIP;
    default:
        return -1;
    }
}

SECTION("xdp") int bypass(struct context *context)
{
    struct cursor cursor = {(u8 *)(long)context->data, (u8 *)(long)context->data_end};
    struct destination to = {};
    struct ethernet *ethernet;
    struct ports *ports;

    if (!TAKE(&cursor, ethernet))
        return count(OTHER);
    u16 type = ethernet->type;

    if (type == BE16(ETHERTYPE_VLAN) || type == BE16(ETHERTYPE_QINQ)) {
        struct vlan *vlan;

        if (!TAKE(&cursor, vlan))
            return count(OTHER);
        type = vlan->type;
    }
    if (type != BE16(ETHERTYPE_IPV4) && type != BE16(ETHERTYPE_IPV6))
        return count(OTHER);
    int protocol = take_ip(&cursor, type == BE16(ETHERTYPE_IPV6), &to);

    if (decapsulate == GUE && protocol == PROTOCOL_UDP)
        protocol = take_gue(&cursor);
    else if (decapsulate != IPIP && protocol != PROTOCOL_TCP)
        return count(protocol == -FRAGMENT ? FRAGMENT : OTHER);
    if (protocol == PROTOCOL_IPIP)
        protocol = take_ip(&cursor, 0, &to);
    else if (protocol == PROTOCOL_IPV6)
        protocol = take_ip(&cursor, 1, &to);
    if (protocol != PROTOCOL_TCP)
        return count(protocol == -FRAGMENT ? FRAGMENT : OTHER);

    if (!TAKE(&cursor, ports))
        return count(OTHER);
    to.port = ports->destination;
    if (!map_lookup(&destinations, &to))
        return count(OTHER_TCP);
    /* Without a socket at the queue, the kernel gets the frame. */
    if (redirect_map(&sockets, context->rx_queue_index, XDP_PASS) != XDP_REDIRECT)
        return count(NO_SOCKET);
    count(REDIRECTED);
    return XDP_REDIRECT;
}

SECTION("license") const char licence[] = "Dual MIT/GPL";
